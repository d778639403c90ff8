"""A reply as Responses output items, and each item as the events that announce it.

Invariant: `item_events` ends with the item as the body has it, and its deltas add up to the item's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from harbor_env.gateway.dialects import sse
from harbor_env.gateway.dialects.calls import function_arguments
from harbor_env.gateway.dialects.opaque import seal
from harbor_env.gateway.dialects.responses_ids import MESSAGE, REASONING, item_id
from harbor_env.gateway.dialects.responses_tools import BUILTINS, wire_name
from harbor_env.gateway.types import Call, Reply, Tool, ToolCall

Item = dict[str, Any]


def output_items(reply: Reply, call: Call) -> list[Item]:
    """Reasoning, message and calls, in that order; never none at all, so that a history can hold the turn.

    The last item of a reply cut at the length limit is incomplete.
    """
    if call.compaction:
        kept = (
            [_user_item(m.content) for m in call.messages[:-1] if m.role == "user"]
            if call.compaction == "endpoint"
            else []
        )
        sealed = seal(reply.message.content)
        return [*kept, {"type": "compaction", "id": f"cmp_{reply.id}", "encrypted_content": sealed}]
    message = reply.message
    items: list[Item] = []
    if message.reasoning:
        summary = [{"type": "summary_text", "text": message.reasoning}]
        sealed = seal(message.reasoning)
        about = {"type": "reasoning", "id": item_id(REASONING, reply.id)}
        items.append({**about, "summary": summary, "encrypted_content": sealed})
    if message.content or not (items or message.tool_calls):
        part = {"type": "output_text", "text": message.content, "annotations": [], "logprobs": []}
        about = {"type": "message", "id": item_id(MESSAGE, reply.id), "role": "assistant"}
        items.append({**about, "status": "completed", "content": [part]})
    tools = {tool.name: tool for tool in (*call.deferred_tools, *call.tools)} if message.tool_calls else {}
    items += [_call_item(made, tools.get(made.name)) for made in message.tool_calls]
    if reply.finish == "length" and "status" in items[-1]:
        items[-1]["status"] = "incomplete"
    return items


def _user_item(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _call_item(made: ToolCall, tool: Tool | None) -> Item:
    if tool is not None and tool.kind == "custom":
        item = {"type": "custom_tool_call", "id": f"ctc_{made.id}", "call_id": made.id, "status": "completed"}
        item |= {"name": wire_name(tool), "input": made.arguments}
    elif tool is not None and tool.kind == "builtin" and (fields := _builtin_fields(made)):
        return {"id": f"call_{made.id}", "call_id": made.id, "status": "completed", **fields}
    else:
        name = made.name if tool is None else wire_name(tool)
        item = {"type": "function_call", "id": f"fc_{made.id}", "call_id": made.id, "status": "completed"}
        item |= {"name": name, "arguments": function_arguments(made)}
    return item | {"namespace": tool.namespace} if tool is not None and tool.namespace else item


def _builtin_fields(made: ToolCall) -> Item | None:
    """The call's own item type; None where its arguments are no object, which a function call can still carry."""
    known = BUILTINS[made.name]
    try:
        given = orjson.loads(function_arguments(made))
    except orjson.JSONDecodeError:
        return None
    if not isinstance(given, dict):
        return None
    if made.name == "local_shell":
        given = {"type": "exec", "env": {}, **given}
    extra = {"execution": "client"} if made.name == "tool_search" else {}
    return {"type": known.call, known.field: given, **extra}


def item_events(item: Item, piece: int) -> Iterator[Item]:
    """The events of one item but for `output_index` and `sequence_number`."""
    kind = item["type"]
    if kind == "reasoning":
        yield _added(item, summary=[])
        yield from _reasoning(item, piece)
    elif kind == "message" and "id" in item:
        yield _added(item, content=[])
        yield from _text(item, piece)
    elif kind == "function_call":
        yield _added(item, arguments="")
        yield from _filled("response.function_call_arguments", item, "arguments", piece)
    elif kind == "custom_tool_call":
        yield _added(item, input="")
        yield from _filled("response.custom_tool_call_input", item, "input", piece)
    else:
        yield _added(item)
    yield {"type": "response.output_item.done", "item": item}


def _added(item: Item, **empty: Any) -> Item:
    progress = {"status": "in_progress"} if "status" in item else {}
    return {"type": "response.output_item.added", "item": {**item, **empty, **progress}}


def _reasoning(item: Item, piece: int) -> Iterator[Item]:
    where = {"item_id": item["id"], "summary_index": 0}
    [part] = item["summary"]
    yield {"type": "response.reasoning_summary_part.added", **where, "part": {**part, "text": ""}}
    for text in sse.cut(part["text"], piece):
        yield {"type": "response.reasoning_summary_text.delta", **where, "delta": text}
    yield {"type": "response.reasoning_summary_text.done", **where, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **where, "part": part}


def _text(item: Item, piece: int) -> Iterator[Item]:
    where = {"item_id": item["id"], "content_index": 0}
    [part] = item["content"]
    yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
    for text in sse.cut(part["text"], piece):
        yield {"type": "response.output_text.delta", **where, "delta": text, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


def _filled(prefix: str, item: Item, field: str, piece: int) -> Iterator[Item]:
    for text in sse.cut(item[field], piece):
        yield {"type": f"{prefix}.delta", "item_id": item["id"], "delta": text}
    yield {"type": f"{prefix}.done", "item_id": item["id"], field: item[field]}
