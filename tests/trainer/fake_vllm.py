"""A fake vLLM that says what a script says, with the log probabilities that the model in a folder gives it.

It takes LoRA adapters as vLLM does, under a new name each, and answers for whichever a request names. Importance ratios
of what is trained on it are therefore true ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.fake_server import serving

BASE = "policy"
WINDOW = 4096

Script = Callable[[str], str]
"""The reply to a prompt, both as text without the token that ends a turn."""


class Weights:
    """The model in a folder and the adapters given to it since, by name."""

    def __init__(self, folder: Path) -> None:
        self._base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._adapted: PeftModel | None = None

    def load(self, name: str, path: str) -> None:
        if self._adapted is None:
            self._adapted = PeftModel.from_pretrained(self._base, path, adapter_name=name).eval()
        else:
            self._adapted.load_adapter(path, adapter_name=name)

    def unload(self, name: str) -> None:
        if self._adapted is not None:
            self._adapted.delete_adapter(name)

    @torch.no_grad()
    def log_probs(self, name: str, prompt: Sequence[int], reply: Sequence[int], temperature: float) -> torch.Tensor:
        """(reply, vocabulary): the distribution each token of the reply was drawn from."""
        model, plain = self._base, nullcontext()
        if self._adapted is not None:
            model = self._adapted
            if name == BASE:
                plain = model.disable_adapter()
            else:
                model.set_adapter(name)
        with plain:
            logits = model(torch.tensor([[*prompt, *reply[:-1]]]), logits_to_keep=len(reply)).logits[0]
        return torch.log_softmax(logits / temperature, dim=-1)


class FakeVllm:
    """`loaded` are the adapters in the order in which they came, `asked` the model each generation named,
    `serving` those that may be named.

    Without `lora` it says that it was started without --enable-lora.
    """

    def __init__(self, folder: Path, script: Script, lora: bool = True) -> None:
        self.loaded: list[str] = []
        self.asked: list[str] = []
        self.url = ""
        self._lora = {"max_lora_rank": 8, "max_loras": 8} if lora else None
        self._script = script
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._weights = Weights(folder)
        self.serving = {BASE}
        self._running = asyncio.Event()
        self._running.set()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[FakeVllm]:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/health", _nothing)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_post("/pause", self._pause)
        app.router.add_post("/resume", self._resume)
        app.router.add_post("/v1/load_lora_adapter", self._load)
        app.router.add_post("/v1/unload_lora_adapter", self._unload)
        app.router.add_post("/inference/v1/generate", self._generate)
        async with serving(app) as self.url:
            try:
                yield self
            finally:
                self._running.set()

    async def _models(self, request: web.Request) -> web.Response:
        base = {"id": BASE, "max_model_len": WINDOW, "parent": None}
        adapters = [{"id": name, "max_model_len": None, "parent": BASE} for name in sorted(self.serving - {BASE})]
        return web.json_response({"object": "list", "data": [base, *adapters]})

    async def _server_info(self, request: web.Request) -> web.Response:
        told = {"lora_config": self._lora, "parallel_config": {"data_parallel_size": 1}}
        return web.json_response({"vllm_config": told})

    async def _pause(self, request: web.Request) -> web.Response:
        self._running.clear()
        return web.Response()

    async def _resume(self, request: web.Request) -> web.Response:
        self._running.set()
        return web.Response()

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = body["lora_name"]
        if name in self.serving:
            return web.json_response({"error": {"message": f"{name} has already been loaded"}}, status=400)
        self._weights.load(name, body["lora_path"])
        self.serving.add(name)
        self.loaded.append(name)
        return web.Response()

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if name in self.serving:
            self.serving.remove(name)
            self._weights.unload(name)
        return web.Response()

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        await self._running.wait()
        name, prompt, sampling = body["model"], body["token_ids"], body["sampling_params"]
        if name not in self.serving:
            return web.json_response({"error": {"message": f"there is no model {name}"}}, status=404)
        self.asked.append(name)
        reply = self._tokenizer.encode(self._script(self._tokenizer.decode(prompt)), add_special_tokens=False)
        ids = [*reply, self._tokenizer.eos_token_id][: sampling["max_tokens"]]
        log_probs = self._weights.log_probs(name, prompt, ids, sampling["temperature"])
        content = [_entry(log_probs[place], token, sampling["logprobs"]) for place, token in enumerate(ids)]
        choice = {
            "index": 0,
            "finish_reason": "stop" if ids[-1] == self._tokenizer.eos_token_id else "length",
            "token_ids": ids,
            "logprobs": {"content": content},
        }
        return web.json_response({"request_id": "r", "choices": [choice], "usage": {}})


def _entry(log_probs: torch.Tensor, token: int, top: int) -> dict[str, Any]:
    best = log_probs.topk(top) if top else None
    listed = zip(best.indices.tolist(), best.values.tolist(), strict=True) if best else ()
    return {
        "token_id": token,
        "logprob": log_probs[token].item(),
        "top_logprobs": [{"token_id": one, "logprob": value} for one, value in listed],
    }


async def _nothing(request: web.Request) -> web.Response:
    return web.Response()
