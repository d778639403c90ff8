"""Anthropic Messages and its token count, as the API reference and the `anthropic` SDK have it.

Invariant: reassembling `stream` gives the message of `encode`; arguments that are not a JSON object travel as sampled
in the stream and in Claude Code's own wrapper, `__unparsedToolInput`, in a body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harbor_env.errors import ErrorKind, GatewayError
from harbor_env.gateway.dialects import sse
from harbor_env.gateway.dialects.anthropic_blocks import History, system_text
from harbor_env.gateway.dialects.calls import SPACE, function_arguments, object_fragment
from harbor_env.gateway.dialects.fields import (
    Json,
    WrongField,
    an_object,
    each_at,
    flag_at,
    integer_at,
    name_at,
    number_at,
    object_at,
    read_at,
    text_at,
    texts_at,
    unknown_type,
)
from harbor_env.gateway.dialects.opaque import signature
from harbor_env.gateway.dialects.protocol import Route
from harbor_env.gateway.dialects.unheeded import (
    CONTINUITY,
    note,
    note_effort,
    note_parallel,
    note_prefill,
    refuse_fields,
    unread_fields,
    words,
)
from harbor_env.gateway.types import Call, Finding, Message, Reply, Sampling, Tool, ToolChoice, Usage

_ERROR_TYPES: dict[ErrorKind, str] = {
    "bad_request": "invalid_request_error",
    "overflow": "invalid_request_error",
    "unauthorized": "authentication_error",
    "not_found": "not_found_error",
    "conflict": "conflict_error",
    "too_large": "request_too_large",
    "unsupported_encoding": "invalid_request_error",
    "rate_limited": "rate_limit_error",
    "engine_error": "api_error",
    "engine_down": "overloaded_error",
    "engine_timeout": "timeout_error",
    "internal": "api_error",
}
_READ = (
    "messages system tools model stream max_tokens temperature top_p top_k stop_sequences tool_choice thinking "
    "output_config output_format context_management"
)
_HARMLESS = "metadata service_tier cache_control container inference_geo speed diagnostics betas"
_KNOWN = words(f"{_READ} {_HARMLESS}")
_TOOL = words("type name description input_schema defer_loading cache_control eager_input_streaming")
_OUTPUT = words("format effort")
_KEEPS_ALL = "clear_thinking"
"""The edit of a context that Claude Code always asks for, and that with `keep: all` changes nothing."""


class Messages:
    """Thinking travels as a `thinking` block; a tool with `defer_loading` is described where it is referenced."""

    name = "messages"
    routes = (
        Route("POST", "/v1/messages", "generate"),
        Route("POST", "/v1/messages/count_tokens", "count"),
    )
    keepalive = sse.event({"type": "ping"})

    def decode(self, body: Mapping[str, Any], params: Mapping[str, str]) -> Call:
        refuse_fields(body, CONTINUITY)
        findings = _unheeded(body)
        tools, deferred = _tools(body, findings)
        history = History({tool.name: tool for tool in deferred}, findings)
        system = system_text(body)
        if system:
            history.messages.append(Message("system", system))
        if not each_at(body, "messages", history.add):
            raise WrongField("must be a list of at least one message", "messages")
        if history.messages[-1].role == "assistant":
            note_prefill(findings)
        return Call(
            messages=tuple(history.messages),
            tools=tools,
            model=text_at(body, "model"),
            stream=flag_at(body, "stream"),
            max_tokens=integer_at(body, "max_tokens", 1),
            sampling=Sampling(
                number_at(body, "temperature"),
                number_at(body, "top_p"),
                integer_at(body, "top_k"),
                texts_at(body, "stop_sequences"),
            ),
            tool_choice=read_at(body, "tool_choice", lambda choice: _tool_choice(choice, findings)),
            thinking=read_at(body, "thinking", lambda thinking: _thinking(thinking, findings)),
            response_schema=_schema(body),
            findings=tuple(findings),
            deferred_tools=deferred,
        )

    def encode(self, reply: Reply, call: Call) -> bytes:
        content = [{**block, **final} for block, final, _ in _blocks(reply)]
        return orjson.dumps(_body(reply, call, content, _stop_reason(reply), reply.usage.completion_tokens))

    def stream(self, reply: Reply, call: Call, piece: int = 0) -> Iterator[bytes]:
        yield sse.event({"type": "message_start", "message": _body(reply, call, [], None, 0)})
        for index, (block, final, deltas) in enumerate(_blocks(reply)):
            opening = {key: {} if key == "input" else "" for key in final}
            yield sse.event({"type": "content_block_start", "index": index, "content_block": {**block, **opening}})
            for kind, field, text in deltas:
                for part in [text] if kind == "signature_delta" else sse.cut(text, piece):
                    delta = {"type": kind, field: part}
                    yield sse.event({"type": "content_block_delta", "index": index, "delta": delta})
            yield sse.event({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        usage = _usage(reply.usage, reply.usage.completion_tokens)
        yield sse.event({"type": "message_delta", "delta": stop, "usage": usage})
        yield sse.event({"type": "message_stop"})

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return error.status, orjson.dumps(_error(error))

    def stream_error(self, error: GatewayError) -> bytes:
        return sse.event(_error(error))

    def count(self, prompt_tokens: int) -> bytes:
        return orjson.dumps({"input_tokens": prompt_tokens})


def _unheeded(body: Json) -> list[Finding]:
    """Findings about fields that are not read where their meaning is."""
    findings = unread_fields(body, _KNOWN)
    output = object_at(body, "output_config")
    findings += unread_fields(output, _OUTPUT, "output_config.")
    note_effort(findings, "output_config.effort", output.get("effort"))
    for edit in each_at(object_at(body, "context_management"), "edits", an_object):
        kind = text_at(edit, "type")
        if not (kind.startswith(_KEEPS_ALL) and edit.get("keep") == "all"):
            note(findings, [Finding("field_ignored", f"context_management.edits[] {kind[:80]}")])
    return findings


def _tools(body: Json, findings: list[Finding]) -> tuple[tuple[Tool, ...], tuple[Tool, ...]]:
    """The tools offered and, apart, those still to be loaded by a `tool_reference`."""
    tools: list[Tool] = []
    deferred: list[Tool] = []

    def add(value: Any) -> None:
        item = an_object(value)
        kind = text_at(item, "type") or "custom"
        if kind != "custom":
            findings.append(Finding("tool_dropped", f"{kind[:80]} is defined by its vendor"))
            return
        note(findings, unread_fields(item, _TOOL, "tools[]."))
        tool = Tool(name_at(item, "name"), text_at(item, "description"), object_at(item, "input_schema"))
        (deferred if flag_at(item, "defer_loading") else tools).append(tool)

    each_at(body, "tools", add)
    return tuple(tools), tuple(deferred)


def _tool_choice(value: Any, findings: list[Finding]) -> ToolChoice:
    choice = {} if value is None else an_object(value)
    note_parallel(findings, flag_at(choice, "disable_parallel_tool_use"))
    kind = choice.get("type", "auto")
    if kind == "auto":
        return ToolChoice()
    if kind == "any":
        return ToolChoice("required")
    if kind == "none":
        return ToolChoice("none")
    if kind == "tool":
        return ToolChoice("named", name_at(choice, "name"))
    raise unknown_type(kind)


def _thinking(value: Any, findings: list[Finding]) -> bool | None:
    thinking = {} if value is None else an_object(value)
    note_effort(findings, "thinking.budget_tokens", thinking.get("budget_tokens"))
    kind = text_at(thinking, "type")
    return kind != "disabled" if kind else None


def _schema(body: Json) -> Mapping[str, Any] | None:
    """`output_config.format`, or `output_format` as the field was first called."""
    wanted = object_at(body, "output_config", "format") or object_at(body, "output_format")
    if not wanted:
        return None
    if wanted.get("type") != "json_schema":
        raise unknown_type(wanted.get("type"))
    return object_at(wanted, "schema")


_Block = tuple[dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]


def _blocks(reply: Reply) -> Iterator[_Block]:
    """Each block as its fixed fields, the fields deltas fill, and those deltas as (type, field, text).

    White space before arguments goes: the SDK parses after each delta, and chokes on a first one that is blank.
    """
    message = reply.message
    if message.reasoning:
        signed = signature(reply.id)
        deltas = [("thinking_delta", "thinking", message.reasoning), ("signature_delta", "signature", signed)]
        yield {"type": "thinking"}, {"thinking": message.reasoning, "signature": signed}, deltas
    if message.content:
        yield {"type": "text"}, {"text": message.content}, [("text_delta", "text", message.content)]
    for made in message.tool_calls:
        fixed, arguments = (
            {"type": "tool_use", "id": made.id, "name": made.name},
            function_arguments(made).lstrip(SPACE),
        )
        yield fixed, {"input": object_fragment(arguments)}, [("input_json_delta", "partial_json", arguments)]


def _body(reply: Reply, call: Call, content: list[Any], stop_reason: str | None, output_tokens: int) -> dict[str, Any]:
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model or call.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": _usage(reply.usage, output_tokens),
    }


def _stop_reason(reply: Reply) -> str:
    if reply.finish == "length":
        return "max_tokens"
    return "tool_use" if reply.message.tool_calls else "end_turn"


def _usage(usage: Usage, output_tokens: int) -> dict[str, Any]:
    """Anthropic counts cached tokens beside the others, and at least one token is always computed anew."""
    cached = max(0, min(usage.cached_tokens, usage.prompt_tokens - 1))
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output_tokens,
    }


def _error(error: GatewayError) -> dict[str, Any]:
    message = _overflow(error) if error.kind == "overflow" else error.message
    return {"type": "error", "error": {"type": _ERROR_TYPES[error.kind], "message": message}}


def _overflow(error: GatewayError) -> str:
    if error.window is None or error.prompt_tokens is None:
        return f"prompt is too long: {error.message}"
    return f"prompt is too long: {error.prompt_tokens} tokens > {error.window} maximum"


MESSAGES = Messages()
