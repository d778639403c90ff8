"""Messages and tools as OpenAI's Chat Completions spells them, the form trainers and chat templates read.

Arguments stay the JSON text as sampled; reasoning is `reasoning_content`, the name chat templates read.
"""

from __future__ import annotations

from typing import Any

from harbor_env.gateway.types import Message, Tool, ToolCall, Turn


def message(source: Message) -> dict[str, Any]:
    """One message; keys without a value are left out, `content` never is."""
    shaped: dict[str, Any] = {"role": source.role, "content": source.content}
    if source.reasoning:
        shaped["reasoning_content"] = source.reasoning
    if source.tool_calls:
        shaped["tool_calls"] = [_tool_call(call) for call in source.tool_calls]
    if source.tool_call_id:
        shaped["tool_call_id"] = source.tool_call_id
    if source.name:
        shaped["name"] = source.name
    return shaped


def tool(source: Tool) -> dict[str, Any]:
    """One tool as a function; a tool that takes free text has one string parameter `input`."""
    parameters = source.parameters
    if source.kind == "custom":
        parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    function = {"name": source.name, "description": source.description, "parameters": parameters}
    return {"type": "function", "function": function}


def finish_reason(turn: Turn) -> str:
    """`tool_calls` where the reply has some, else the turn's own finish."""
    return "tool_calls" if turn.reply.tool_calls else turn.finish


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
