"""Each dialect over real sockets: two turns, the second built from the first's answer, are one conversation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from harbor_env.gateway.types import Message, ToolCall
from tests.serving import Served, serving
from tests.strict_clients import READERS

CALL = Message("assistant", "Looking.", "First I look.", (ToolCall("", "bash", '{"cmd": "ls"}'),))
SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}
USER = {"role": "user", "content": "go"}


def chat(answer: Any) -> tuple[str, dict[str, Any]]:
    body = {"tools": [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]}
    if answer is None:
        return "/v1/chat/completions", {**body, "messages": [USER]}
    said = answer["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "a.txt"}
    return "/v1/chat/completions", {**body, "messages": [USER, said, result]}


def messages(answer: Any) -> tuple[str, dict[str, Any]]:
    body = {"max_tokens": 100, "tools": [{"name": "bash", "input_schema": SCHEMA}]}
    if answer is None:
        return "/v1/messages", {**body, "messages": [USER]}
    result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "a.txt"}
    said = {"role": "assistant", "content": answer["content"]}
    return "/v1/messages", {**body, "messages": [USER, said, {"role": "user", "content": [result]}]}


def responses(answer: Any) -> tuple[str, dict[str, Any]]:
    body = {"tools": [{"type": "function", "name": "bash", "parameters": SCHEMA}]}
    if answer is None:
        return "/v1/responses", {**body, "input": [USER]}
    result = {"type": "function_call_output", "call_id": answer["output"][-1]["call_id"], "output": "a.txt"}
    return "/v1/responses", {**body, "input": [USER, *answer["output"], result]}


def previous(answer: Any) -> tuple[str, dict[str, Any]]:
    path, body = responses(answer)
    if answer is None:
        return path, body
    return path, {**body, "input": body["input"][-1:], "previous_response_id": answer["id"]}


def gemini(answer: Any) -> tuple[str, dict[str, Any]]:
    user = {"role": "user", "parts": [{"text": "go"}]}
    body = {"tools": [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": SCHEMA}]}]}
    if answer is None:
        return "/v1beta/models/m:generateContent", {**body, "contents": [user]}
    said = answer["candidates"][0]["content"]
    made = said["parts"][-1]["functionCall"]
    result = {"functionResponse": {"id": made["id"], "name": "bash", "response": {"output": "a.txt"}}}
    contents = [user, said, {"role": "user", "parts": [result]}]
    return "/v1beta/models/m:generateContent", {**body, "contents": contents}


Talk = Callable[[Any], tuple[str, dict[str, Any]]]
TALKS: dict[str, Talk] = {
    "chat": chat,
    "messages": messages,
    "responses": responses,
    "responses by id": previous,
    "gemini": gemini,
}


async def ask(served: Served, key: str, path: str, body: dict[str, Any], stream: bool) -> bytes:
    if stream and "generateContent" in path:
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
    elif stream:
        body = {**body, "stream": True}
    headers = {"Authorization": f"Bearer {key}"}
    async with served.client.post(path, json={"model": "m", **body}, headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.read()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", TALKS)
async def test_two_turns_are_one_conversation(tmp_path: Path, name: str, stream: bool) -> None:
    talk, read = TALKS[name], READERS[name.split()[0]]
    async with serving(tmp_path) as served:
        served.engine.answers.append(CALL)
        key = await served.key()
        answer: Any = None
        for _ in range(2):
            path, body = talk(answer)
            raw = await ask(served, key, path, body, stream)
            answer = read(raw) if stream else orjson.loads(raw)
        counts = await served.counts(key)
        assert (counts["turns"], counts["roots"], counts["rows"]) == (2, 1, 1)
        assert "Reply 2." in str(answer)


COUNTS = {
    "/v1/messages/count_tokens": ({"messages": [USER]}, "input_tokens"),
    "/v1/responses/input_tokens": ({"input": [USER]}, "input_tokens"),
    "/v1beta/models/m:countTokens": ({"contents": [{"parts": [{"text": "go"}]}]}, "totalTokens"),
}


@pytest.mark.parametrize("path", COUNTS)
async def test_a_count_of_tokens_is_no_turn(tmp_path: Path, path: str) -> None:
    body, field = COUNTS[path]
    async with serving(tmp_path) as served:
        key = await served.key()
        assert orjson.loads(await ask(served, key, path, body, False))[field] > 0
        assert (await served.counts(key))["turns"] == 0
