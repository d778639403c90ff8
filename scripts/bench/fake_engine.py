"""A fast fake of vLLM: scripted replies in real tokens, no model. About 0.1 ms of CPU a call.

    python -m bench.fake_engine --tokenizer DIR --port P [--turns 10 --first 4000 --growth 500 --reply 120 --delay-ms 0]

`/inference/v1/generate` answers ids with ids: turn k is how many assistant messages the prompt's ids hold. The chat
route answers messages, with prompt ids cut from one fixed stream so that every prompt extends the one before it, for
proxies that let the engine render. Turn k calls the tool `bash`; the last turn is plain text.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from tokenizers import Tokenizer

OPENS_ASSISTANT = "<|im_start|>assistant"
END = "<|im_end|>"
Message = dict[str, Any]


class Script:
    """What the model says at each turn, as text, ids and log probabilities."""

    def __init__(self, tokenizer: Tokenizer, turns: int, first: int, growth: int, reply: int) -> None:
        self.tokenizer, self.turns = tokenizer, turns
        self.first, self.growth, self.reply = first, growth, reply
        self.opens = tokenizer.encode(OPENS_ASSISTANT, add_special_tokens=False).ids
        self.end = end_of_message(tokenizer)
        self.stream = [1000 + (index * 7919) % 140_000 for index in range(first + turns * growth + reply)]
        self.stream_json = [b"%d" % token for token in self.stream]

    @lru_cache(maxsize=4096)  # noqa: B019 - one script lives as long as the process
    def said(self, turn: int) -> tuple[str, Message]:
        """The text a model would sample, and the message an engine that parses it answers with."""
        if turn >= self.turns - 1:
            return "All done.", {"role": "assistant", "content": "All done."}
        text = f"Step {turn}. " + "word " * max(0, self.reply - 40)
        arguments = f'{{"command": "echo step {turn}"}}'
        call = f'<tool_call>\n{{"name": "bash", "arguments": {arguments}}}\n</tool_call>'
        function = {"name": "bash", "arguments": arguments}
        message = {"role": "assistant", "content": text}
        return f"{text}\n{call}", message | {"tool_calls": [{"id": "", "type": "function", "function": function}]}

    @lru_cache(maxsize=4096)  # noqa: B019
    def sampled(self, turn: int) -> list[int]:
        return [*self.tokenizer.encode(self.said(turn)[0], add_special_tokens=False).ids, self.end]

    def turn_of(self, ids: list[int]) -> int:
        """How many assistant messages stand before the one to be sampled."""
        count, at = -1, -1
        try:
            while True:
                at = ids.index(self.opens[0], at + 1)
                count += ids[at : at + len(self.opens)] == self.opens
        except ValueError:
            return max(0, count)


def end_of_message(tokenizer: Tokenizer) -> int:
    """The id a reply ends with. ValueError: this is not a tokenizer of that family."""
    found = tokenizer.token_to_id(END)
    if found is None:
        raise ValueError(f"the tokenizer has no {END}: give Qwen3's")
    return int(found)


def logprob(token: int) -> float:
    """A made-up log probability, a pure function of the id."""
    return -((token * 2_654_435_761) % 3001) / 1000


def generate_answer(body: Message, ids: list[int]) -> Message:
    """The token route's answer. Where alternatives are asked for, they follow the temperature, as a probe expects."""
    sampling, prompt = body["sampling_params"], body["token_ids"]
    if sampling.get("logprobs"):
        alternatives = _distribution(sampling["temperature"])
        top = [{"token_id": token, "logprob": value} for token, value in alternatives]
        ids, content = [alternatives[0][0]], [{**top[0], "top_logprobs": top}]
    else:
        content = [{"token_id": token, "logprob": logprob(token)} for token in ids]
    choice = {"index": 0, "finish_reason": "stop", "token_ids": ids, "logprobs": {"content": content}}
    return {"request_id": "r", "choices": [choice], "usage": _usage(len(prompt), len(ids))}


def chat(script: Script, body: Message) -> bytes:
    """The chat route's answer, with the ids and log probabilities a capture proxy asks vLLM for."""
    asked = body["messages"]
    if "[bench]" not in str(asked[0]["content"])[:200]:
        return orjson.dumps(probe_answer(body))
    turn = sum(message["role"] == "assistant" for message in asked)
    message = dict(script.said(turn)[1])
    if "tool_calls" in message:
        message["tool_calls"] = [{**message["tool_calls"][0], "id": f"call_{turn}"}]
    start = script.first + turn * script.growth
    ids = script.stream[start : start + script.reply]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
        "token_ids": ids,
        "logprobs": {"content": [named(token, logprob(token)) for token in ids]},
    }
    answer = {"id": f"chatcmpl-{turn}", "object": "chat.completion", "created": 0, "model": "fake", "choices": [choice]}
    rest = orjson.dumps(answer | {"usage": _usage(start, len(ids))})
    prompt = b",".join(script.stream_json[:start])
    return rest[:-1] + b',"prompt_token_ids":[' + prompt + b"]}"


def probe_answer(body: Message) -> Message:
    top = [named(token, value) for token, value in _distribution(float(body.get("temperature") or 1.0))]
    shown = [{**top[0], "top_logprobs": top[: body.get("top_logprobs") or 0]}]
    message: Message = {"role": "assistant", "content": "ok"}
    if body.get("tools"):
        function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"command": "ls /tmp"}'}
        message["tool_calls"] = [{"id": "call_probe", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if body.get("tools") else "stop"}
    choice |= {"token_ids": [100], "logprobs": {"content": shown}}
    answer = {"id": "chatcmpl-probe", "object": "chat.completion", "created": 0, "model": "fake", "choices": [choice]}
    return answer | {"prompt_token_ids": list(range(200, 212)), "usage": _usage(12, 1)}


def _distribution(temperature: float) -> list[tuple[int, float]]:
    scores = [(100 + index, score / temperature) for index, score in enumerate((5.0, 3.0, 1.0, 0.0, -1.0))]
    total = math.log(sum(math.exp(score) for _, score in scores))
    return [(token, score - total) for token, score in scores]


def named(token: int, value: float) -> Message:
    return {"token": f"token_id:{token}", "logprob": value, "bytes": None, "top_logprobs": []}


def _usage(prompt: int, completion: int) -> Message:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class App:
    """The ASGI app. A stream is one chunk: what is measured is the proxy, not the engine."""

    def __init__(self, script: Script, delay_ms: float, window: int) -> None:
        self.script, self.delay = script, delay_ms / 1000
        card = {"id": "fake", "object": "model", "created": 0, "owned_by": "bench", "max_model_len": window}
        self.models = orjson.dumps({"object": "list", "data": [card]})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw, more = b"", True
        while more:
            event = await receive()
            raw += event.get("body", b"")
            more = event.get("more_body", False)
        status, body = await self.answer(scope["path"], raw)
        length = (b"content-length", b"%d" % len(body))
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"application/json"), length],
            }
        )
        await send({"type": "http.response.body", "body": body})

    async def answer(self, path: str, raw: bytes) -> tuple[int, bytes]:
        if path == "/inference/v1/generate":
            await asyncio.sleep(self.delay)
            body = orjson.loads(raw)
            return 200, orjson.dumps(generate_answer(body, self.script.sampled(self.script.turn_of(body["token_ids"]))))
        if path == "/v1/chat/completions":
            await asyncio.sleep(self.delay)
            return 200, chat(self.script, orjson.loads(raw))
        if path == "/v1/models":
            return 200, self.models
        return (200, b"{}") if path == "/health" else (404, b'{"error":{"message":"no such route"}}')


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--tokenizer", type=Path, required=True)
    found.add_argument("--port", type=int, required=True)
    for name, default in (("turns", 10), ("first", 4000), ("growth", 500), ("reply", 120), ("window", 262_144)):
        found.add_argument(f"--{name}", type=int, default=default)
    found.add_argument("--delay-ms", type=float, default=0.0)
    given = found.parse_args()
    tokenizer = Tokenizer.from_file(str(given.tokenizer / "tokenizer.json"))
    script = Script(tokenizer, given.turns, given.first, given.growth, given.reply)
    app = App(script, given.delay_ms, given.window)
    bound = uvicorn.Config(app, "127.0.0.1", given.port, log_level="warning", lifespan="off", backlog=4096)
    bound.timeout_keep_alive = 120
    uvicorn.Server(bound).run()


if __name__ == "__main__":
    main()
