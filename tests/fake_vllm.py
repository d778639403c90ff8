"""A fake vLLM at the HTTP boundary: the right wire format over a model of five tokens, and every way to get it wrong.

It also speaks SGLang's `/generate`. Faults are set as attributes while it runs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

LOGITS = {100: 5.0, 101: 3.0, 102: 1.0, 103: 0.0, 104: -1.0}
REPLY = (100, 101, 102)
CACHED = 3


def distribution(temperature: float) -> dict[int, float]:
    """Log probabilities of the five tokens at a temperature."""
    scaled = {token: logit / temperature for token, logit in LOGITS.items()}
    norm = math.log(sum(math.exp(value) for value in scaled.values()))
    return {token: value - norm for token, value in scaled.items()}


class FakeVllm:
    """`mangle` changes a JSON answer before it is sent. `refuse` holds (status, headers, body) for generations to come.

    `raw` is sent in place of any answer. While `gate` is not set, generations wait; `arrivals` counts those that came.
    """

    def __init__(self) -> None:
        self.port = 0
        self.scale_out = True
        self.token_ids = True
        self.processed = True
        self.mangle: Callable[[Any], Any] | None = None
        self.refuse: list[tuple[int, dict[str, str], bytes]] = []
        self.raw: bytes | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrivals = asyncio.Semaphore(0)
        self.left = asyncio.Event()
        self.models: list[dict[str, Any]] = [{"id": "policy", "max_model_len": 2048, "parent": None}]
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.connections: set[Any] = set()
        self._runner: web.AppRunner | None = None

    async def wait_for_calls(self, count: int) -> None:
        """Wait until `count` generations arrived that were not waited for before."""
        for _ in range(count):
            await self.arrivals.acquire()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self._models)
        for path in ("/inference/v1/generate", "/v1/completions", "/v1/chat/completions", "/generate"):
            app.router.add_post(path, self._generate)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.shutdown()
            await runner.cleanup()

    async def drop_idle_connections(self) -> None:
        """Close every connection, as a server does with those idle too long."""
        for transport in self.connections:
            transport.close()

    async def _models(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": self.models})

    async def _generate(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.connections.add(request.transport)
        self.calls.append((request.path, body))
        self.arrivals.release()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        if self.refuse:
            status, headers, text = self.refuse.pop(0)
            return web.Response(status=status, headers=headers, body=text)
        if request.path == "/inference/v1/generate" and not self.scale_out:
            return _json({"error": {"message": "Scale-out endpoints are disabled", "code": 403}}, 403)
        if self.raw is not None:
            return web.Response(body=self.raw, content_type="application/json")
        answer = _ANSWERS[request.path](self, body)
        return _json(self.mangle(answer) if self.mangle else answer)

    def sampled(self, max_tokens: int, stop_ids: list[int]) -> tuple[list[int], str]:
        ids = [*REPLY, *stop_ids[:1]]
        return ids[:max_tokens], "stop" if stop_ids and len(ids) <= max_tokens else "length"

    def logprobs(self, temperature: float) -> dict[int, float]:
        values = distribution(temperature if self.processed and temperature else 1.0)
        return {**values, **dict.fromkeys(range(1, 100), -0.25)}

    def inference(self, body: dict[str, Any]) -> Any:
        params = body["sampling_params"]
        ids, finish = self.sampled(params["max_tokens"], params["stop_token_ids"])
        values = self.logprobs(params["temperature"])
        content = [
            {"token_id": token, "logprob": values[token], "rank": 1, "top_logprobs": _top(values, params["logprobs"])}
            for token in ids
        ]
        choice = {
            "index": 0,
            "finish_reason": finish,
            "token_ids": ids,
            "logprobs": {"content": content},
            "weight_versions": [{"version": "v1", "start": 0, "end": len(ids)}],
        }
        return {"request_id": "generate-tokens-1", "choices": [choice], "usage": _usage(body["token_ids"], ids)}

    def completions(self, body: dict[str, Any]) -> Any:
        ids, finish = self.sampled(body["max_tokens"], body["stop_token_ids"])
        values = self.logprobs(body["temperature"])
        top = {f"token_id:{item['token_id']}": item["logprob"] for item in _top(values, body["logprobs"])}
        logprobs = {
            "tokens": [f"token_id:{token}" for token in ids],
            "token_logprobs": [values[token] for token in ids],
            "top_logprobs": [{**top, f"token_id:{token}": values[token]} for token in ids],
        }
        choice: dict[str, Any] = {"index": 0, "text": "x", "finish_reason": finish, "logprobs": logprobs}
        if self.token_ids:
            choice |= {"token_ids": ids, "prompt_token_ids": body["prompt"]}
        return {"choices": [choice], "usage": _usage(body["prompt"], ids)}

    def chat(self, body: dict[str, Any]) -> Any:
        message = {"role": "assistant", "content": "Hello."}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 7}}

    def sglang(self, body: dict[str, Any]) -> Any:
        params = body["sampling_params"]
        ids, finish = self.sampled(params["max_new_tokens"], params["stop_token_ids"])
        values = self.logprobs(params["temperature"])
        top = [[item["logprob"], item["token_id"], None] for item in _top(values, body["top_logprobs_num"])]
        meta = {
            "finish_reason": {"type": finish},
            "output_token_logprobs": [[values[token], token, None] for token in ids],
            "output_top_logprobs": [top for _ in ids] if top else None,
            "cached_tokens": CACHED,
            "weight_version": "v1",
        }
        return {"text": "x", "output_ids": ids, "meta_info": meta}


_ANSWERS: dict[str, Callable[[FakeVllm, dict[str, Any]], Any]] = {
    "/inference/v1/generate": FakeVllm.inference,
    "/v1/completions": FakeVllm.completions,
    "/v1/chat/completions": FakeVllm.chat,
    "/generate": FakeVllm.sglang,
}


@asynccontextmanager
async def serving() -> AsyncIterator[FakeVllm]:
    fake = FakeVllm()
    await fake.start()
    try:
        yield fake
    finally:
        fake.gate.set()
        await fake.stop()


def _top(values: dict[int, float], count: int) -> list[dict[str, Any]]:
    best = sorted(LOGITS, key=lambda token: -values[token])[:count]
    return [{"token_id": token, "logprob": values[token], "rank": rank} for rank, token in enumerate(best, 1)]


def _usage(prompt: list[int], ids: list[int]) -> dict[str, Any]:
    details = {"cached_tokens": CACHED}
    return {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "prompt_tokens_details": details}


def _json(value: Any, status: int = 200) -> web.Response:
    # Python's own JSON writes NaN, as some servers do; orjson would write null.
    return web.json_response(value, status=status)
