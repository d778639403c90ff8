"""OpenAI Chat Completions, as its API reference and the `openai` SDK have it.

Invariant: reassembling `stream` gives the message of `encode`, field by field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import orjson

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects import sse
from harbor_env.gateway.dialects.calls import custom_names, function_arguments
from harbor_env.gateway.dialects.fields import (
    Json,
    a_list,
    an_object,
    flag_at,
    integer_at,
    json_text,
    list_at,
    name_at,
    number_at,
    object_at,
    parts_text,
    text_at,
    texts_at,
    unknown_type,
    wrong,
)
from harbor_env.gateway.dialects.openai_errors import openai_error
from harbor_env.gateway.dialects.protocol import Route
from harbor_env.gateway.types import Call, Finding, Message, Reply, Role, Sampling, Tool, ToolCall, ToolChoice, Usage

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class Chat:
    """`reasoning_content` (or `reasoning`) carries thinking both ways; unknown fields are ignored."""

    name = "chat"
    routes = (Route("POST", "/v1/chat/completions", "generate"),)
    keepalive = sse.COMMENT

    def decode(self, body: Mapping[str, Any], params: Mapping[str, str]) -> Call:
        findings: list[Finding] = []
        raw = a_list(body.get("messages"), "messages")
        if not raw:
            raise wrong("messages", "is empty")
        if (integer_at(body, "n", "") or 1) != 1:
            raise wrong("n", "only one choice is served")
        stream = flag_at(body, "stream", "")
        names: dict[str, str] = {}
        return Call(
            messages=tuple(_message(item, f"messages[{i}]", names, findings) for i, item in enumerate(raw)),
            tools=_tools(list_at(body, "tools", ""), findings),
            model=text_at(body, "model", ""),
            stream=stream,
            max_tokens=_max_tokens(body),
            sampling=_sampling(body),
            tool_choice=_tool_choice(body.get("tool_choice")),
            thinking=_thinking(body),
            response_schema=_schema(object_at(body, "response_format", "")),
            include_usage=not stream
            or flag_at(object_at(body, "stream_options", ""), "include_usage", "stream_options"),
            findings=tuple(findings),
        )

    def encode(self, reply: Reply, call: Call) -> bytes:
        message = reply.message
        out: dict[str, Any] = {"role": "assistant", "content": _content(message), "refusal": None}
        if message.reasoning:
            out["reasoning_content"] = message.reasoning
        if message.tool_calls:
            custom = custom_names(call)
            out["tool_calls"] = [_call_out(c, c.name in custom, _arguments(c, custom)) for c in message.tool_calls]
        choice = {"index": 0, "message": out, "logprobs": None, "finish_reason": _finish(reply)}
        return orjson.dumps(
            {**_head(reply, call, "chat.completion"), "choices": [choice], "usage": _usage(reply.usage)}
        )

    def stream(self, reply: Reply, call: Call, piece: int = 0) -> Iterator[bytes]:
        head = _head(reply, call, "chat.completion.chunk")
        if call.include_usage:
            head["usage"] = None

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return sse.data({**head, "choices": [choice]})

        opening = None if _content(reply.message) is None else ""
        yield chunk({"role": "assistant", "content": opening, "refusal": None})
        for text in sse.cut(reply.message.reasoning, piece):
            yield chunk({"reasoning_content": text})
        for text in sse.cut(reply.message.content, piece):
            yield chunk({"content": text})
        custom = custom_names(call)
        for index, made in enumerate(reply.message.tool_calls):
            is_custom = made.name in custom
            yield chunk({"tool_calls": [{"index": index, **_call_out(made, is_custom, "")}]})
            for text in sse.cut(_arguments(made, custom), piece):
                part = {"custom": {"input": text}} if is_custom else {"function": {"arguments": text}}
                yield chunk({"tool_calls": [{"index": index, **part}]})
        yield chunk({}, _finish(reply))
        if call.include_usage:
            yield sse.data({**head, "choices": [], "usage": _usage(reply.usage)})
        yield sse.DONE

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return error.status, orjson.dumps({"error": openai_error(error, "messages")})

    def stream_error(self, error: GatewayError) -> bytes:
        return sse.data({"error": openai_error(error, "messages")})

    def count(self, prompt_tokens: int) -> bytes:
        return orjson.dumps({"prompt_tokens": prompt_tokens})


def _message(value: Any, path: str, names: dict[str, str], findings: list[Finding]) -> Message:
    """One message. `names` are the functions of the calls so far by id: a result seldom says which it answers."""
    item = an_object(value, path)
    role = _ROLES.get(name_at(item, "role", path))
    if role is None:
        raise wrong(f"{path}.role", f"unknown role {item['role'][:80]!r}")
    content, where = item.get("content"), f"{path}.content"
    if role == "tool":
        answered = text_at(item, "tool_call_id", path)
        name = text_at(item, "name", path)
        text = parts_text(content, where, "\n", findings)
        return Message(role, text, tool_call_id=answered, name=names.get(answered, name))
    if role != "assistant":
        return Message(role, parts_text(content, where, "\n"))
    calls = tuple(_call_in(call, f"{path}.tool_calls[{i}]") for i, call in enumerate(list_at(item, "tool_calls", path)))
    names.update((call.id, call.name) for call in calls)
    text = parts_text(content, where, "") or text_at(item, "refusal", path)
    return Message(role, text, text_at(item, "reasoning_content", path) or text_at(item, "reasoning", path), calls)


def _call_in(value: Any, path: str) -> ToolCall:
    item = an_object(value, path)
    if item.get("type") == "custom":
        custom = object_at(item, "custom", path)
        return ToolCall(
            text_at(item, "id", path), name_at(custom, "name", f"{path}.custom"), text_at(custom, "input", path)
        )
    function, where = object_at(item, "function", path), f"{path}.function"
    arguments = function.get("arguments")
    text = json_text(arguments, where) if isinstance(arguments, dict) else text_at(function, "arguments", where)
    return ToolCall(text_at(item, "id", path), name_at(function, "name", where), text)


def _tools(raw: list[Any], findings: list[Finding]) -> tuple[Tool, ...]:
    tools = []
    for i, value in enumerate(raw):
        path = f"tools[{i}]"
        item = an_object(value, path)
        kind = item.get("type", "function")
        if kind == "function":
            function, where = object_at(item, "function", path), f"{path}.function"
            name, description = name_at(function, "name", where), text_at(function, "description", where)
            tools.append(Tool(name, description, object_at(function, "parameters", where)))
        elif kind == "custom":
            custom, where = object_at(item, "custom", path), f"{path}.custom"
            grammar = object_at(object_at(custom, "format", where), "grammar", f"{where}.format")
            tools.append(custom_tool(custom, grammar, where))
        elif isinstance(kind, str):
            findings.append(Finding("tool_dropped", f"{path}: {kind} is hosted by its vendor"))
        else:
            raise unknown_type(path, kind)
    return tuple(tools)


def custom_tool(item: Json, grammar: Json, path: str) -> Tool:
    """A free-text tool; its grammar joins the description, where the model can read it."""
    description = text_at(item, "description", path)
    definition = text_at(grammar, "definition", f"{path}.format")
    if definition:
        syntax = text_at(grammar, "syntax", f"{path}.format")
        description = f"{description}\n\nThe input follows this {syntax} grammar:\n{definition}".strip()
    return Tool(name_at(item, "name", path), description, kind="custom")


def _max_tokens(body: Json) -> int | None:
    newer = integer_at(body, "max_completion_tokens", "", 1)
    older = integer_at(body, "max_tokens", "", 1)
    return older if newer is None else newer


def _sampling(body: Json) -> Sampling:
    return Sampling(
        number_at(body, "temperature", ""),
        number_at(body, "top_p", ""),
        integer_at(body, "top_k", ""),
        texts_at(body, "stop", ""),
        integer_at(body, "seed", ""),
    )


def _tool_choice(choice: Any) -> ToolChoice:
    if choice is None or choice == "auto":
        return ToolChoice()
    if choice == "none":
        return ToolChoice("none")
    if choice == "required":
        return ToolChoice("required")
    item = an_object(choice, "tool_choice")
    kind = item.get("type")
    if kind == "allowed_tools":
        return ToolChoice(mode_at(object_at(item, "allowed_tools", "tool_choice"), "tool_choice.allowed_tools"))
    if kind == "function" or kind == "custom":
        return ToolChoice("named", name_at(object_at(item, kind, "tool_choice"), "name", f"tool_choice.{kind}"))
    raise unknown_type("tool_choice", kind)


def mode_at(allowed: Json, path: str) -> Literal["auto", "required"]:
    """The mode of OpenAI's `allowed_tools` choice; the list of names itself is not enforced."""
    return "required" if text_at(allowed, "mode", path) == "required" else "auto"


def _thinking(body: Json) -> bool | None:
    template = object_at(body, "chat_template_kwargs", "")
    if "enable_thinking" in template:
        return flag_at(template, "enable_thinking", "chat_template_kwargs")
    effort = text_at(body, "reasoning_effort", "")
    return effort != "none" if effort else None


def _schema(response_format: Json) -> Mapping[str, Any] | None:
    kind = response_format.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        wrapped = object_at(response_format, "json_schema", "response_format")
        return object_at(wrapped, "schema", "response_format.json_schema")
    raise unknown_type("response_format", kind)


def _head(reply: Reply, call: Call, kind: str) -> dict[str, Any]:
    return {"id": reply.id, "object": kind, "created": reply.created, "model": reply.model or call.model}


def _content(message: Message) -> str | None:
    """null only where calls stand alone, as OpenAI has it."""
    return None if message.tool_calls and not message.content else message.content


def _arguments(made: ToolCall, custom: frozenset[str]) -> str:
    return made.arguments if made.name in custom else function_arguments(made)


def _call_out(made: ToolCall, is_custom: bool, arguments: str) -> dict[str, Any]:
    if is_custom:
        return {"id": made.id, "type": "custom", "custom": {"name": made.name, "input": arguments}}
    return {"id": made.id, "type": "function", "function": {"name": made.name, "arguments": arguments}}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.finish != "length" and reply.message.tool_calls else reply.finish


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


CHAT = Chat()
