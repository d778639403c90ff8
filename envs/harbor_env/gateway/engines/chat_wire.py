"""A `Call` as an OpenAI Chat Completions request, and its answer as a `Generation` without ids.

Source: the Chat Completions API reference. Invariant: what a harness said reaches the engine in its order; a free-text
tool travels as a function with one string, and comes back as free text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineRequest
from harbor_env.gateway.types import Call, Finding, Finish, Generation, Message, Tool, ToolCall

_FREE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def chat_body(request: EngineRequest, model: str, *, logprobs: bool, left_out: Collection[str] = ()) -> dict[str, Any]:
    """The request body; parameters in `left_out` are not sent (`max_tokens` there means its newer name is)."""
    call, sampling = request.call, request.sampling
    custom = {tool.name for tool in call.tools if tool.kind == "custom"}
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message, custom) for message in call.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if logprobs:
        body["logprobs"] = True
    if call.tools:
        body |= {"tools": [_tool(tool) for tool in call.tools], "tool_choice": _tool_choice(call)}
    if call.response_schema is not None:
        schema = {"name": "reply", "schema": call.response_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if "max_tokens" in left_out:
        body["max_completion_tokens"] = sampling.max_tokens
    return {name: value for name, value in body.items() if name not in left_out}


def read_chat(answer: Any, tools: Sequence[Tool], findings: tuple[Finding, ...] = ()) -> Generation:
    """The answer's only choice. Call ids are dropped: the session mints its own."""
    try:
        choice = answer["choices"][0]
        reply = choice["message"]
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in reply.get("tool_calls") or ()]
        text = reply.get("content") or ""
        reasoning = reply.get("reasoning_content") or reply.get("reasoning") or ""
        usage = answer.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError("engine_error", "the engine's answer is not a chat completion") from error
    if not isinstance(text, str) or not isinstance(reasoning, str):
        raise EngineError("engine_error", "the engine's answer is not plain text")
    custom = {tool.name for tool in tools if tool.kind == "custom"}
    message = Message(
        "assistant",
        text,
        reasoning=reasoning,
        tool_calls=tuple(ToolCall("", name, _arguments(name, value, custom)) for name, value in calls),
    )
    finish: Finish = "length" if choice.get("finish_reason") == "length" else "stop"
    counts = {name: usage[name] for name in ("prompt_tokens", "completion_tokens") if isinstance(usage.get(name), int)}
    return Generation((), (), finish, (), cached, text, message, findings, extras=counts, trainable=False)


def _message(message: Message, custom: Collection[str]) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [_call(call, custom) for call in message.tool_calls]
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id
        if message.is_error:
            wire["content"] = f"Error: {message.content}"
    if message.reasoning:
        wire["reasoning_content"] = message.reasoning
    return wire


def _call(call: ToolCall, custom: Collection[str]) -> dict[str, Any]:
    arguments = json.dumps({"input": call.arguments}) if call.name in custom else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: Tool) -> dict[str, Any]:
    parameters = _FREE_TEXT if tool.kind == "custom" else tool.parameters
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(parameters)},
    }


def _tool_choice(call: Call) -> Any:
    choice = call.tool_choice
    return {"type": "function", "function": {"name": choice.name}} if choice.mode == "named" else choice.mode


def _arguments(name: str, value: Any, custom: Collection[str]) -> str:
    """Arguments as JSON text (some servers send them parsed), or the free text of a custom tool."""
    text = value if isinstance(value, str) else json.dumps(value)
    if name not in custom:
        return text
    try:
        inner: object = json.loads(text)
    except ValueError:
        return text
    return str(inner["input"]) if isinstance(inner, Mapping) and "input" in inner else text
