"""An engine that samples what was sampled before, at a chat route as vLLM has it.

Prompts are rendered by the model's own template; ids and log probabilities come back with the answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from jinja2 import TemplateError

from bench.vllm_chat import answer, read_reply, render

Json = dict[str, Any]


class ReplayEngine:
    """Answers one chat request with the turn in `turn`, whatever it asks, and none after it.

    `hugging` is a transformers tokenizer with a chat template.
    """

    def __init__(self, hugging: Any) -> None:
        self.hugging = hugging
        self.turn: Json | None = None

    async def chat(self, request: web.Request) -> web.Response:
        turn = self.turn
        try:
            prompt = render(self.hugging, await request.json())
        except TemplateError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)
        if turn is None:
            return web.json_response({"error": {"message": "no turn is to be played"}}, status=400)
        self.turn = None
        finish = "length" if turn["finish_reason"] == "length" else "stop"
        return web.json_response(answer(self.said(turn), prompt, turn["sampled_ids"], turn["logprobs"], finish))

    def said(self, turn: Json) -> Json:
        """The message vLLM would answer with; its calls have the ids of the recorded ones, where they are as many."""
        ids = turn["sampled_ids"]
        ended = turn["finish_reason"] != "length" and ids and ids[-1] == self.hugging.eos_token_id
        message = read_reply(self.hugging.decode(ids[:-1] if ended else ids))
        for place, call in enumerate(calls := message.get("tool_calls") or []):
            recorded = turn["reply"].get("tool_calls") or []
            call["id"] = recorded[place]["id"] if len(calls) == len(recorded) else f"call_{place}"
        return message

    def told(self, turn: Json) -> Json:
        """What a harness that sends back what it was told would send for a turn before: vLLM's text, where vLLM finds
        the calls the harness went by; else the recorded reply, for the harness would have gone another way.

        White space alone is left out, as most harnesses do.
        """
        said, reply = self.said(turn), dict(turn["reply"])
        if _calls(said) != _calls(reply):
            return reply
        text = said["content"] or ""
        return {**reply, "content": text if text.strip() else ""}


def _calls(message: Json) -> list[tuple[str, Any]]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [(function["name"], _parsed(function["arguments"])) for function in functions]


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return arguments


@asynccontextmanager
async def served(engine: ReplayEngine, port: int) -> AsyncIterator[None]:
    """The engine's chat route at a port of loopback."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/chat/completions", engine.chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()
