"""The harness's side of a scripted conversation, in two dialects, as cheap as a load generator needs it.

History is kept as serialised messages, so that a turn costs one join. Raises ValueError on an answer that is cut short.
"""

from __future__ import annotations

from typing import Any

import orjson

DESCRIPTION = "Run a shell command in the sandbox and return its output. " * 4
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PROSE = "the quick brown fox jumps over the lazy dog and then writes a unit test for it; "


def filler(tokens: int) -> str:
    """English of about `tokens` tokens."""
    return (PROSE * (tokens // 17 + 1))[: max(0, tokens) * 9 // 2]


class Chat:
    """OpenAI Chat Completions, not streamed. `capture` asks for ids, for runs without a capture proxy."""

    path = "/v1/chat/completions"

    def __init__(self, first: int, growth: int, *, capture: bool = False) -> None:
        function = [
            {"type": "function", "function": {"name": "bash", "description": DESCRIPTION, "parameters": SCHEMA}}
        ]
        extra: dict[str, Any] = {"logprobs": True, "top_logprobs": 0, "return_token_ids": True} if capture else {}
        head = orjson.dumps({"model": "fake", "max_tokens": 4096, "temperature": 1.0, "tools": function, **extra})
        self._head = head[:-1] + b',"messages":['
        self._result = filler(growth)
        opening = (
            {"role": "system", "content": f"[bench] {filler(first)}"},
            {"role": "user", "content": "Do the task."},
        )
        self._messages = [orjson.dumps(message) for message in opening]

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def body(self) -> bytes:
        return self._head + b",".join(self._messages) + b"]}"

    def absorb(self, raw: bytes) -> bool:
        """Take an answer into the history; False when the conversation is over."""
        message = orjson.loads(raw)["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        shown = {"role": "assistant", "content": message.get("content")}
        self._messages.append(orjson.dumps(shown | ({"tool_calls": calls} if calls else {})))
        for call in calls:
            result = {"role": "tool", "tool_call_id": call["id"], "content": self._result}
            self._messages.append(orjson.dumps(result))
        return bool(calls)


class Anthropic:
    """Anthropic Messages, streamed, as Claude Code asks."""

    path = "/v1/messages"

    def __init__(self, first: int, growth: int) -> None:
        tools = [{"name": "bash", "description": DESCRIPTION, "input_schema": SCHEMA}]
        system = [{"type": "text", "text": f"[bench] {filler(first)}"}]
        head = {
            "model": "fake",
            "max_tokens": 4096,
            "temperature": 1.0,
            "stream": True,
            "system": system,
            "tools": tools,
        }
        self._head = orjson.dumps(head)[:-1] + b',"messages":['
        self._result = filler(growth)
        self._messages = [orjson.dumps({"role": "user", "content": "Do the task."})]

    def headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": "2023-06-01", "content-type": "application/json"}

    def body(self) -> bytes:
        return self._head + b",".join(self._messages) + b"]}"

    def absorb(self, raw: bytes) -> bool:
        """Take an answer into the history; False when the conversation is over."""
        blocks = list(_blocks(raw))
        self._messages.append(orjson.dumps({"role": "assistant", "content": blocks}))
        uses = [block for block in blocks if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use["id"], "content": self._result} for use in uses]
        if results:
            self._messages.append(orjson.dumps({"role": "user", "content": results}))
        return bool(uses)


def _blocks(raw: bytes) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    partial, ended = "", False
    for line in raw.split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        event = orjson.loads(line[5:])
        kind, delta = event["type"], event.get("delta", {})
        if kind == "content_block_start":
            blocks.append(event["content_block"])
            partial = ""
        elif delta.get("type") == "text_delta":
            blocks[-1]["text"] += delta["text"]
        elif delta.get("type") == "input_json_delta":
            partial += delta["partial_json"]
        elif kind == "content_block_stop" and blocks[-1]["type"] == "tool_use":
            blocks[-1]["input"] = orjson.loads(partial or "{}")
        ended = ended or kind == "message_stop"
        if kind == "error":
            raise ValueError(f"stream error: {event['error']}")
    if not ended:
        raise ValueError("the stream was cut short")
    return blocks
