"""Messages and tools as the plain dictionaries templates and the `renderers` library read.

Invariant: every string that came from outside is guarded here and nowhere else, and an error result is visible here and
nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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


def visible(message: Message) -> str:
    """A message's text; a failed tool result says so at its start, once."""
    if not message.is_error or message.content.lstrip().lower().startswith("error"):
        return message.content
    return f"Error: {message.content}"


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
    except ValueError:
        return Raw(call.arguments)
    return decoded if isinstance(decoded, dict) else Raw(call.arguments)


def message_dict(message: Message, guard: Guard, custom: frozenset[str], *, text_arguments: bool) -> dict[str, Any]:
    """One message. Keys a template tests with `is defined` are present only where there is something to say."""
    entry: dict[str, Any] = {"role": message.role, "content": guard(visible(message))}
    if message.reasoning:
        entry["reasoning_content"] = entry["thinking"] = entry["reasoning"] = guard(message.reasoning)
    if message.tool_calls:
        entry["tool_calls"] = [_call_dict(call, guard, custom, text_arguments) for call in message.tool_calls]
    if message.role == "tool":
        entry |= {"tool_call_id": guard(message.tool_call_id), "name": guard(message.name)}
    return entry


def _call_dict(call: ToolCall, guard: Guard, custom: frozenset[str], text: bool) -> dict[str, Any]:
    arguments = arguments_of(call, custom)
    shown: Any = Raw(guard(str(arguments))) if isinstance(arguments, Raw) else guard.deep(arguments)
    if text and not isinstance(shown, Raw):
        shown = json.dumps(shown, ensure_ascii=False)
    function = {"name": guard(call.name), "arguments": shown}
    return {"type": "function", "id": guard(call.id or call.native_id), "function": function}


def custom_names(tools: Sequence[Tool]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if tool.kind == "custom")


def argument_findings(messages: Sequence[Message], custom: frozenset[str]) -> list[Finding]:
    """Calls whose arguments had to be rendered as they are."""
    calls = [call for message in messages for call in message.tool_calls]
    bad = [call.name for call in calls if isinstance(arguments_of(call, custom), Raw)]
    return [Finding("arguments_not_json", f"{', '.join(bad)}: rendered as text")] if bad else []
