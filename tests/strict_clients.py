"""Strict client doubles: each accepts exactly the events its vendor documents, and rebuilds the body from them.

They are fakes of the strictest client one may meet; any event missing, repeated or out of order is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

Body = dict[str, Any]


def events(stream: bytes) -> list[tuple[str, Any]]:
    """Server-sent events as (name, parsed data); "" where unnamed, the raw text where it is no JSON."""
    assert stream.endswith(b"\n\n")
    found = []
    for block in stream[:-2].decode().split("\n\n"):
        name, data = "", None
        for line in block.splitlines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                assert data is None
                data = value
            else:
                assert line.startswith(":"), line
        if data is not None:
            found.append((name, data if data == "[DONE]" else orjson.loads(data)))
    return found


def read_chat(stream: bytes) -> Body:
    found = events(stream)
    assert found.pop() == ("", "[DONE]")
    assert all(name == "" for name, _ in found)
    chunks = [chunk for _, chunk in found]
    usage: Body = {}
    if not chunks[-1]["choices"]:
        usage = {"usage": chunks.pop()["usage"]}
    message: Body = {}
    finish = None
    for index, chunk in enumerate(chunks):
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk.get("usage") is None
        assert ("usage" in chunk) == bool(usage)
        [choice] = chunk["choices"]
        assert finish is None
        finish = choice["finish_reason"]
        delta = choice["delta"]
        assert ("role" in delta) == (index == 0)
        assert "tool_calls" not in delta or delta["tool_calls"]
        assert (finish is None) == bool(delta)
        _add_chat(message, delta)
    assert finish is not None
    head = {key: chunks[0][key] for key in ("id", "created", "model")}
    assert all({key: chunk[key] for key in head} == head for chunk in chunks)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**head, "object": "chat.completion", "choices": [choice], **usage}


def _add_chat(message: Body, delta: Body) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            for part in value:
                _add_chat_call(message.setdefault("tool_calls", []), dict(part))
        elif isinstance(message.get(key), str):
            message[key] += value
        else:
            message[key] = value


def _add_chat_call(calls: list[Body], part: Body) -> None:
    index = part.pop("index")
    if index == len(calls):
        assert part["id"]
        calls.append(part)
        return
    assert index == len(calls) - 1
    [(kind, fields)] = part.items()
    for key, value in fields.items():
        assert value
        calls[index][kind][key] += value


_ANTHROPIC_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}


def read_messages(stream: bytes) -> Body:
    found = events(stream)
    assert all(name == data["type"] for name, data in found)
    queue = [data for _, data in found if data["type"] != "ping"]
    start = queue.pop(0)
    assert start["type"] == "message_start"
    message: Body = start["message"]
    assert message["content"] == []
    assert message["stop_reason"] is None
    assert message["usage"]["input_tokens"] > 0
    assert queue.pop() == {"type": "message_stop"}
    end = queue.pop()
    assert end["type"] == "message_delta"
    assert end["delta"]["stop_reason"]
    message |= end["delta"]
    message["usage"] |= end["usage"]
    while queue:
        message["content"].append(_anthropic_block(queue, len(message["content"])))
    return message


def _anthropic_block(queue: list[Body], index: int) -> Body:
    start = queue.pop(0)
    assert (start["type"], start["index"]) == ("content_block_start", index)
    block: Body = start["content_block"]
    if block["type"] == "tool_use":
        assert block["input"] == {}
        block["partial_json"] = ""
    while (event := queue.pop(0))["type"] == "content_block_delta":
        assert event["index"] == index
        kind, key = _ANTHROPIC_DELTAS[event["delta"]["type"]]
        assert block["type"] == kind
        assert event["delta"][key]
        block[key] += event["delta"][key]
    assert event == {"type": "content_block_stop", "index": index}
    if block["type"] == "tool_use":
        block["input"] = anthropic_input(block.pop("partial_json"))
    else:
        assert block[block["type"]]
    return block


def anthropic_input(text: str) -> Any:
    """A call's input as Claude Code holds it: the object, or its wrapper around text that is none."""
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"__unparsedToolInput": {"raw": text, "len": len(text)}}


_FILLED = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}


def read_responses(stream: bytes) -> Body:
    found = events(stream)
    assert all(name == data["type"] for name, data in found)
    queue = [data for _, data in found]
    assert [event.pop("sequence_number") for event in queue] == list(range(len(queue)))
    for kind in ("response.created", "response.in_progress"):
        begun = queue.pop(0)
        assert begun["type"] == kind
        assert begun["response"]["output"] == []
        assert begun["response"]["status"] == "in_progress"
    end = queue.pop()
    final: Body = end["response"]
    assert end["type"] == f"response.{final['status']}"
    assert (final["object"], final["id"]) == ("response", begun["response"]["id"])
    assert final["model"]
    assert final["output"]
    output: list[Body] = []
    while queue:
        output.append(_responses_item(queue, len(output)))
    assert output == final["output"]
    return final


def _responses_item(queue: list[Body], index: int) -> Body:
    added = queue.pop(0)
    assert (added["type"], added["output_index"]) == ("response.output_item.added", index)
    item: Body = added["item"]
    assert item.get("status", "in_progress") == "in_progress"
    inner = []
    while (event := queue.pop(0))["type"] != "response.output_item.done":
        assert event.pop("output_index") == index
        assert event.pop("item_id") == item["id"]
        inner.append(event)
    done: Body = event["item"]
    assert event["output_index"] == index
    if item["type"] in _FILLED:
        prefix, field = _FILLED[item["type"]]
        assert item[field] == ""
        item[field] = _filled(inner, prefix, field)
    elif item["type"] == "message":
        item["content"] = _parts(inner, "content", "response.content_part", "response.output_text")
    elif item["type"] == "reasoning":
        item["summary"] = _parts(inner, "summary", "response.reasoning_summary_part", "response.reasoning_summary_text")
    assert not inner
    if "status" in item:
        item["status"] = done["status"]
        assert done["status"] in ("completed", "incomplete")
    assert item == done
    return item


def _filled(inner: list[Body], prefix: str, field: str) -> str:
    text = ""
    while (event := inner.pop(0))["type"] == f"{prefix}.delta":
        assert event["delta"]
        text += event["delta"]
    assert event == {"type": f"{prefix}.done", field: text}
    return text


def _parts(inner: list[Body], name: str, part: str, text: str) -> list[Body]:
    added = inner.pop(0)
    assert added["type"] == f"{part}.added"
    assert added["part"]["text"] == ""
    where = {f"{name}_index": 0}
    assert all({key: event.pop(key) for key in where} == where for event in [added, *inner])
    done = inner.pop()
    if name == "content":
        assert all(event.pop("logprobs") == [] for event in inner)
    said = _filled(inner, text, "text")
    assert done == {"type": f"{part}.done", "part": {**added["part"], "text": said}}
    return [done["part"]]


def read_gemini(stream: bytes) -> Body:
    found = events(stream)
    assert all(name == "" for name, _ in found)
    chunks = [chunk for _, chunk in found]
    parts: list[Body] = []
    for index, chunk in enumerate(chunks):
        [candidate] = chunk["candidates"]
        assert candidate["content"]["role"] == "model"
        assert ("finishReason" in candidate) == (index == len(chunks) - 1)
        for part in candidate["content"]["parts"]:
            _add_gemini_part(parts, part)
    whole: Body = chunks[-1]
    assert all(chunk["responseId"] == whole["responseId"] for chunk in chunks)
    whole["candidates"][0]["content"]["parts"] = parts
    return whole


def _add_gemini_part(parts: list[Body], part: Body) -> None:
    last = parts[-1] if parts else {}
    if "text" in part and "text" in last and last.get("thought") == part.get("thought"):
        parts[-1] = {**last, **part, "text": last["text"] + part["text"]}
    else:
        parts.append(part)


READERS: dict[str, Callable[[bytes], Body]] = {
    "chat": read_chat,
    "messages": read_messages,
    "responses": read_responses,
    "gemini": read_gemini,
}
