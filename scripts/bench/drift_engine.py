"""A fake vLLM for the drift cases: it samples a case's ids, whatever asks.

    python -m bench.drift_engine --tokenizer DIR --port P

Ids in, ids out at `/inference/v1/generate`. At the chat route it renders with the model's own template and splits the
sampled text as vLLM's parsers do. `POST /case {"name"}` starts a case; `GET /sampled` says what it sampled since.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from transformers import AutoTokenizer

from bench.drift_cases import CASES, Case
from bench.fake_engine import generate_answer, logprob, probe_answer
from bench.vllm_chat import answer, read_reply, render


class DriftEngine:
    """One case at a time, one conversation at a time: turn k is the k-th call since the case began."""

    def __init__(self, folder: Path) -> None:
        self.hugging = AutoTokenizer.from_pretrained(folder)
        self.tokenizer = self.hugging.backend_tokenizer
        self.begin(next(iter(CASES.values())))

    def begin(self, case: Case) -> None:
        self.case, self.turn = case, 0
        self.prompts: list[int] = []
        self.replies: list[int] = []

    def sample(self, prompt: list[int]) -> list[int]:
        ids = self.case.sampled(self.tokenizer, self.turn)
        self.turn += 1
        self.prompts.append(len(prompt))
        self.replies.append(len(ids))
        return ids

    async def start_case(self, request: Request) -> Response:
        self.begin(CASES[(await request.json())["name"]])
        return _json({})

    async def sampled(self, _: Request) -> Response:
        return _json({"prompts": self.prompts, "replies": self.replies})

    async def generate(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        if body["sampling_params"].get("logprobs"):
            return _json(generate_answer(body, []))
        return _json(generate_answer(body, self.sample(body["token_ids"])))

    async def chat(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        if "drift" not in str(body["messages"][0]["content"])[:200]:
            return _json(probe_answer(body))
        prompt = render(self.hugging, body, enable_thinking=self.case.thinking)
        message = read_reply(self.case.text(self.turn))
        ids = self.sample(prompt)
        for call in message.get("tool_calls") or ():
            call["id"] = f"call_{self.turn}"
        return _json(answer(message, prompt, ids, list(map(logprob, ids)), "stop"))


def _json(document: Any) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--tokenizer", type=Path, required=True)
    found.add_argument("--port", type=int, required=True)
    given = found.parse_args()
    engine = DriftEngine(given.tokenizer)
    card = {"id": "fake", "object": "model", "created": 0, "owned_by": "bench", "max_model_len": 262_144}

    async def models(_: Request) -> Response:
        return _json({"object": "list", "data": [card]})

    async def health(_: Request) -> Response:
        return _json({})

    routes = [
        Route("/case", engine.start_case, methods=["POST"]),
        Route("/sampled", engine.sampled),
        Route("/inference/v1/generate", engine.generate, methods=["POST"]),
        Route("/v1/chat/completions", engine.chat, methods=["POST"]),
        Route("/v1/models", models),
        Route("/health", health),
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
