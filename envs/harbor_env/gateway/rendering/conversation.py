"""Messages and tools as the plain dictionaries templates and the `renderers` library read.

Invariant: every string that came from outside is guarded here and nowhere else, and an error result is made visible
here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harbor_env.gateway.rendering.guard import Guard
from harbor_env.gateway.types import Finding, Message, Tool, ToolCall

CUSTOM_ARGUMENT = "input"
"""The one parameter under which a free-text tool is shown to a model, and read back."""


class Raw(str):
    """Arguments that are not a JSON object, printed as they are wherever a template wants an object or its JSON."""

    __slots__ = ()

    def items(self) -> list[tuple[str, str]]:
        return [("arguments", str(self))]

    def keys(self) -> list[str]:
        return ["arguments"]


def outside(message: Message, guard: Guard) -> Message:
    """A message whose texts can stand next to a template's own: guarded, and a failed tool result says so, once."""
    content = message.content
    if message.is_error and not content.lstrip().lower().startswith("error"):
        content = f"Error: {content}"
    return replace(
        message,
        content=guard(content),
        reasoning=guard(message.reasoning),
        tool_calls=tuple(outside_call(call, guard) for call in message.tool_calls),
        tool_call_id=guard(message.tool_call_id),
        name=guard(message.name),
    )


def outside_call(call: ToolCall, guard: Guard) -> ToolCall:
    """A guarded call. Arguments keep their own text, unless JSON escapes hide a special token's text in it."""
    arguments = guard(call.arguments)
    if "\\u" in arguments:
        try:
            decoded = guard.deep(json.loads(call.arguments))
            arguments = arguments if decoded == json.loads(arguments) else json.dumps(decoded, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return replace(call, id=guard(call.id), name=guard(call.name), arguments=arguments, native_id=guard(call.native_id))


def tool_dict(tool: Tool, guard: Guard) -> dict[str, Any]:
    parameters: Mapping[str, Any] = tool.parameters or {"type": "object", "properties": {}}
    if tool.kind == "custom":
        field = {CUSTOM_ARGUMENT: {"type": "string"}}
        parameters = {"type": "object", "properties": field, "required": [CUSTOM_ARGUMENT]}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": guard.deep(function)}


def arguments_of(call: ToolCall, custom: frozenset[str]) -> Mapping[str, Any] | Raw:
    """A call's arguments as a mapping, the way templates iterate them; the raw text where they are no JSON object."""
    if call.name in custom:
        return {CUSTOM_ARGUMENT: call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        decoded = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return Raw(call.arguments)
    return decoded if isinstance(decoded, dict) else Raw(call.arguments)


def message_dict(message: Message, custom: frozenset[str], *, text_arguments: bool) -> dict[str, Any]:
    """One guarded message. Keys a template tests with `is defined` are there only where there is something to say."""
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        entry["reasoning_content"] = entry["thinking"] = entry["reasoning"] = message.reasoning
    if message.tool_calls:
        entry["tool_calls"] = [_call_dict(call, custom, text_arguments) for call in message.tool_calls]
    if message.role == "tool":
        entry |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return entry


def _call_dict(call: ToolCall, custom: frozenset[str], text: bool) -> dict[str, Any]:
    arguments: Any = arguments_of(call, custom)
    if text and not isinstance(arguments, Raw):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {
        "type": "function",
        "id": call.id or call.native_id,
        "function": {"name": call.name, "arguments": arguments},
    }


def custom_names(tools: Sequence[Tool]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if tool.kind == "custom")


def argument_findings(messages: Sequence[Message], custom: frozenset[str]) -> list[Finding]:
    """Calls whose arguments had to be rendered as they are."""
    calls = [call for message in messages for call in message.tool_calls]
    bad = [call.name for call in calls if isinstance(arguments_of(call, custom), Raw)]
    return [Finding("arguments_not_json", f"{', '.join(bad)}: rendered as text")] if bad else []
