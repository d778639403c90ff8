"""OpenAI Chat Completions, as its API reference and the `openai` SDK have it.

Invariant: reassembling `stream` gives the message of `encode`, field by field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects import sse
from harbor_env.gateway.dialects.calls import custom_names, function_arguments
from harbor_env.gateway.dialects.fields import (
    Json,
    WrongField,
    an_object,
    content_at,
    each_at,
    flag_at,
    integer_at,
    json_text,
    name_at,
    number_at,
    object_at,
    read_at,
    string_at,
    text_at,
    texts_at,
    unknown_type,
)
from harbor_env.gateway.dialects.openai_choice import openai_choice
from harbor_env.gateway.dialects.openai_errors import openai_error
from harbor_env.gateway.dialects.protocol import Route
from harbor_env.gateway.dialects.unheeded import (
    CONTINUITY,
    note,
    note_effort,
    note_parallel,
    refuse_fields,
    unread_fields,
    words,
)
from harbor_env.gateway.types import Call, Finding, Message, Reply, Role, Sampling, Tool, ToolCall, Usage

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_READ = (
    "messages tools model stream stream_options max_tokens max_completion_tokens temperature top_p top_k stop seed n "
    "tool_choice parallel_tool_calls response_format chat_template_kwargs enable_thinking thinking reasoning_effort "
    "reasoning"
)
_HARMLESS = "metadata user store service_tier prompt_cache_key prompt_cache_retention safety_identifier usage"
_KNOWN = words(f"{_READ} {_HARMLESS}")
_TOOL = words("name description parameters format cache_control")
_MEANT = ("name", "audio", "prefix", "partial")
"""Fields of a message that say something to a vendor's model, and nothing here."""
_VARIABLES = words("enable_thinking thinking")
"""What chat templates call the variable that switches thinking."""
_OLDER = dict.fromkeys(("functions", "function_call"), "the older form of tools is not served, send `tools` instead")


class Chat:
    """`reasoning_content` (or `reasoning`) carries thinking both ways; unknown fields are ignored."""

    name = "chat"
    routes = (Route("POST", "/v1/chat/completions", "generate"),)
    keepalive = sse.COMMENT

    def decode(self, body: Mapping[str, Any], params: Mapping[str, str]) -> Call:
        refuse_fields(body, {**CONTINUITY, **_OLDER})
        findings = unread_fields(body, _KNOWN)
        note_parallel(findings, body.get("parallel_tool_calls") is False)
        history = _History(findings)
        messages = tuple(each_at(body, "messages", history.message))
        if not messages:
            raise WrongField("must be a list of at least one message", "messages")
        if (integer_at(body, "n") or 1) != 1:
            raise WrongField("only one choice is served", "n")
        stream = flag_at(body, "stream")
        return Call(
            messages=messages,
            tools=tuple(tool for tool in each_at(body, "tools", lambda item: _tool(item, findings)) if tool),
            model=text_at(body, "model"),
            stream=stream,
            max_tokens=_max_tokens(body),
            sampling=_sampling(body),
            tool_choice=read_at(body, "tool_choice", lambda choice: openai_choice(choice, findings)),
            thinking=_thinking(body, findings),
            response_schema=read_at(body, "response_format", _schema),
            include_usage=not stream or read_at(body, "stream_options", _include_usage),
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


class _History:
    """Messages in order, with the functions called so far by id: a result seldom says which it answers.

    Between results and the next reply, media in a user message are a tool's: only text fits into a result.
    """

    def __init__(self, findings: list[Finding]) -> None:
        self._findings = findings
        self._names: dict[str, str] = {}
        self._answering = False

    def message(self, value: Any) -> Message:
        item = an_object(value)
        role = _ROLES.get(name_at(item, "role"))
        if role is None:
            raise WrongField(f"unknown role {item['role'][:80]!r}", "role")
        refuse_fields(item, _OLDER)
        self._answering = role == "tool" or (self._answering and role != "assistant")
        if role == "tool":
            answered, name = text_at(item, "tool_call_id"), text_at(item, "name")
            text = content_at(item, "content", "\n", self._findings)
            return Message(role, text, tool_call_id=answered, name=self._names.get(answered, name))
        note(self._findings, [Finding("field_ignored", f"messages[].{key}") for key in _MEANT if item.get(key)])
        if role != "assistant":
            return Message(role, content_at(item, "content", "\n", self._findings if self._answering else None))
        text = content_at(item, "content", "") or text_at(item, "refusal")
        reasoning = text_at(item, "reasoning_content") or text_at(item, "reasoning")
        if not item.get("tool_calls"):
            return Message(role, text, reasoning)
        calls = tuple(each_at(item, "tool_calls", _call_in))
        self._names.update((call.id, call.name) for call in calls)
        return Message(role, text, reasoning, calls)


def _call_in(value: Any) -> ToolCall:
    item = an_object(value)
    kind, read = ("custom", _custom_in) if item.get("type") == "custom" else ("function", _function_in)
    name, arguments = read_at(item, kind, read)
    return ToolCall(text_at(item, "id"), name, arguments)


def _function_in(value: Any) -> tuple[str, str]:
    function = an_object(value)
    arguments = function.get("arguments")
    text = read_at(function, "arguments", json_text) if isinstance(arguments, dict) else text_at(function, "arguments")
    return string_at(function, "name"), text


def _custom_in(value: Any) -> tuple[str, str]:
    custom = an_object(value)
    return string_at(custom, "name"), text_at(custom, "input")


def _tool(value: Any, findings: list[Finding]) -> Tool | None:
    item = an_object(value)
    kind = item.get("type", "function")
    if kind == "function" or kind == "custom":
        tool = read_at(item, kind, _function_tool if kind == "function" else _custom_tool)
        note(findings, unread_fields(item[kind], _TOOL, "tools[]."))
        return tool
    if not isinstance(kind, str):
        raise unknown_type(kind)
    findings.append(Finding("tool_dropped", f"{kind[:80]} is hosted by its vendor"))
    return None


def _function_tool(value: Any) -> Tool:
    function = an_object(value)
    return Tool(name_at(function, "name"), text_at(function, "description"), object_at(function, "parameters"))


def _custom_tool(value: Any) -> Tool:
    custom = an_object(value)
    return custom_tool(custom, object_at(custom, "format", "grammar"))


def custom_tool(item: Json, grammar: Json) -> Tool:
    """A free-text tool; its grammar joins the description, where the model can read it."""
    description, definition = text_at(item, "description"), text_at(grammar, "definition")
    if definition:
        description += f"\n\nThe input follows this {text_at(grammar, 'syntax')} grammar:\n{definition}"
    return Tool(name_at(item, "name"), description.strip(), kind="custom")


def _max_tokens(body: Json) -> int | None:
    newer, older = integer_at(body, "max_completion_tokens", 1), integer_at(body, "max_tokens", 1)
    return older if newer is None else newer


def _sampling(body: Json) -> Sampling:
    return Sampling(
        number_at(body, "temperature"),
        number_at(body, "top_p"),
        integer_at(body, "top_k"),
        texts_at(body, "stop"),
        integer_at(body, "seed"),
    )


def _thinking(body: Json, findings: list[Finding]) -> bool | None:
    """Every spelling clients have for it: the template's own variable, a flag, an object with a type, an effort."""
    variables = object_at(body, "chat_template_kwargs")
    findings += unread_fields(variables, _VARIABLES, "chat_template_kwargs.")
    effort = _effort(body, findings)
    if name := next((name for name in _VARIABLES if variables.get(name) is not None), None):
        return read_at(body, "chat_template_kwargs", lambda template: flag_at(template, name))
    if body.get("enable_thinking") is not None:
        return flag_at(body, "enable_thinking")
    if kind := read_at(body, "thinking", lambda value: "" if value is None else text_at(an_object(value), "type")):
        note_effort(findings, "thinking.budget_tokens", body["thinking"].get("budget_tokens"))
        return kind != "disabled"
    return effort != "none" if effort else None


def _effort(body: Json, findings: list[Finding]) -> str:
    """The effort asked for, in OpenAI's field or in OpenRouter's."""
    effort = text_at(body, "reasoning_effort")
    if effort:
        field = "reasoning_effort"
    else:
        reasoning = body.get("reasoning")
        if not isinstance(reasoning, dict):
            findings += unread_fields({"reasoning": reasoning}, frozenset())
            return ""
        note_effort(findings, "reasoning.max_tokens", reasoning.get("max_tokens"))
        effort, field = text_at(reasoning, "effort"), "reasoning.effort"
    note_effort(findings, field, "" if effort == "none" else effort)
    return effort


def _schema(value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    wanted = an_object(value)
    kind = wanted.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        return object_at(wanted, "json_schema", "schema")
    raise unknown_type(kind)


def _include_usage(options: Any) -> bool:
    return options is not None and flag_at(an_object(options), "include_usage")


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
