"""Google's generateContent, streamGenerateContent and countTokens, as the API reference and `google-genai` have it.

Invariant: the parts of all chunks of a stream, texts joined, are the parts of the whole body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harbor_env.errors import ErrorKind, GatewayError
from harbor_env.gateway.dialects import sse
from harbor_env.gateway.dialects.calls import SPACE, function_arguments, object_fragment
from harbor_env.gateway.dialects.fields import (
    Json,
    WrongField,
    an_object,
    each_at,
    integer_at,
    number_at,
    object_at,
    read_at,
    text_at,
    texts_at,
)
from harbor_env.gateway.dialects.gemini_parts import History, instruction_text
from harbor_env.gateway.dialects.gemini_tools import key_of, lower_schema, snake, tools_of
from harbor_env.gateway.dialects.opaque import seal, signature
from harbor_env.gateway.dialects.protocol import Route
from harbor_env.gateway.dialects.unheeded import (
    CONTINUITY,
    note_allowed,
    note_effort,
    note_prefill,
    refuse_fields,
    unread_fields,
)
from harbor_env.gateway.types import Call, Finding, Message, Reply, Sampling, ToolChoice, Usage

_STATUS: dict[ErrorKind, str] = {
    "bad_request": "INVALID_ARGUMENT",
    "overflow": "INVALID_ARGUMENT",
    "unauthorized": "UNAUTHENTICATED",
    "not_found": "NOT_FOUND",
    "conflict": "ABORTED",
    "too_large": "INVALID_ARGUMENT",
    "unsupported_encoding": "INVALID_ARGUMENT",
    "rate_limited": "RESOURCE_EXHAUSTED",
    "engine_error": "INTERNAL",
    "engine_down": "UNAVAILABLE",
    "engine_timeout": "DEADLINE_EXCEEDED",
    "internal": "INTERNAL",
}


def _both(names: str) -> frozenset[str]:
    """The names, in each of the two spellings Google's JSON allows."""
    return frozenset(spelling for name in names.split() for spelling in (name, snake(name)))


_KNOWN = _both("contents systemInstruction tools toolConfig generationConfig model safetySettings labels")
_CONFIG = _both(
    "maxOutputTokens temperature topP topK stopSequences seed candidateCount thinkingConfig responseMimeType "
    "responseSchema responseJsonSchema"
)
_THINKING = _both("includeThoughts thinkingBudget thinkingLevel")
_CALLING = _both("mode allowedFunctionNames")
_MODES = {"NONE": ToolChoice("none"), "ANY": ToolChoice("required")}
_CACHED = "what the vendor cached is not here, send it in `contents`"
_REFUSED = {**CONTINUITY, "cachedContent": _CACHED, "cached_content": _CACHED}


def _routes(version: str) -> tuple[Route, ...]:
    path = f"/{version}/models/{{model:path}}"
    return (
        Route("POST", f"{path}:generateContent", "generate"),
        Route("POST", f"{path}:streamGenerateContent", "generate", {"stream": "yes"}),
        Route("POST", f"{path}:countTokens", "count"),
    )


class Gemini:
    """Thinking travels as a `thought` part, and sealed as the `thoughtSignature` of the part after it.

    Between events only blank lines are safe: the vendor's SDKs parse any other line that is no `data:` as JSON. For the
    same reason a failure in mid-stream is bare JSON, the form in which they look for one.
    """

    name = "gemini"
    routes = (*_routes("v1beta"), *_routes("v1"))
    keepalive = b"\n\n"

    def decode(self, body: Mapping[str, Any], params: Mapping[str, str]) -> Call:
        wrapped = key_of(body, "generateContentRequest")
        if wrapped in body:
            body = read_at(body, wrapped, an_object)
        refuse_fields(body, _REFUSED)
        findings = unread_fields(body, _KNOWN)
        history = History(findings)
        system = read_at(body, key_of(body, "systemInstruction"), instruction_text)
        if system:
            history.messages.append(Message("system", system))
        if not each_at(body, "contents", history.add):
            raise WrongField("must be a list of at least one content", "contents")
        if history.messages[-1].role == "assistant":
            note_prefill(findings)
        config = object_at(body, key_of(body, "generationConfig"))
        if (integer_at(config, key_of(config, "candidateCount")) or 1) != 1:
            raise WrongField("only one candidate is served", "generationConfig.candidateCount")
        return Call(
            messages=tuple(history.messages),
            tools=tuple(tool for found in each_at(body, "tools", lambda v: tools_of(v, findings)) for tool in found),
            model=params.get("model", ""),
            stream="stream" in params,
            tool_choice=_tool_choice(body, findings),
            **read_at(body, key_of(body, "generationConfig"), lambda config: _generation(config, findings)),
            findings=tuple(findings),
        )

    def encode(self, reply: Reply, call: Call) -> bytes:
        return orjson.dumps(_body(reply, call, _parts(reply), _finish(reply)))

    def stream(self, reply: Reply, call: Call, piece: int = 0) -> Iterator[bytes]:
        pieces = [cut for part in _parts(reply) for cut in _cut(part, piece)]
        last = len(pieces) - 1
        for i, part in enumerate(pieces):
            yield sse.data(_body(reply, call, [part], _finish(reply) if i == last else None))

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return error.status, orjson.dumps(_error(error))

    def stream_error(self, error: GatewayError) -> bytes:
        return orjson.dumps(_error(error)) + b"\n\n"

    def count(self, prompt_tokens: int) -> bytes:
        return orjson.dumps({"totalTokens": prompt_tokens})


def _generation(value: Any, findings: list[Finding]) -> dict[str, Any]:
    """What `generationConfig` says, as fields of a `Call`."""
    config = {} if value is None else an_object(value)
    findings += unread_fields(config, _CONFIG, "generationConfig.")
    return {
        "max_tokens": integer_at(config, key_of(config, "maxOutputTokens"), 1),
        "sampling": Sampling(
            number_at(config, "temperature"),
            number_at(config, key_of(config, "topP")),
            _whole(config, key_of(config, "topK")),
            texts_at(config, key_of(config, "stopSequences")),
            integer_at(config, "seed"),
        ),
        "thinking": read_at(config, key_of(config, "thinkingConfig"), lambda value: _thinking(value, findings)),
        "response_schema": _schema(config),
    }


def _whole(config: Json, key: str) -> int | None:
    """`topK` is a number in Google's own schema."""
    value = number_at(config, key)
    return None if value is None else int(min(value, 2**31))


def _thinking(value: Any, findings: list[Finding]) -> bool | None:
    """A budget of 0 is none at all, -1 leaves it to the model."""
    config = {} if value is None else an_object(value)
    findings += unread_fields(config, _THINKING, "thinkingConfig.")
    level = text_at(config, key_of(config, "thinkingLevel"))
    budget = integer_at(config, key_of(config, "thinkingBudget"))
    note_effort(findings, "thinkingConfig.thinkingLevel", level)
    note_effort(findings, "thinkingConfig.thinkingBudget", None if budget in (0, -1) else budget)
    if level or budget is None:
        return True if level else None
    return budget != 0


def _schema(config: Json) -> Mapping[str, Any] | None:
    plain, older = key_of(config, "responseJsonSchema"), key_of(config, "responseSchema")
    schema = object_at(config, plain) or read_at(config, older, lower_schema)
    if schema or text_at(config, key_of(config, "responseMimeType")) != "application/json":
        return schema or None
    return {"type": "object"}


def _tool_choice(body: Json, findings: list[Finding]) -> ToolChoice:
    config = object_at(body, key_of(body, "toolConfig"))
    calling_at = key_of(config, "functionCallingConfig")
    calling = object_at(config, calling_at)
    findings += unread_fields(config, frozenset({calling_at}), "toolConfig.")
    findings += unread_fields(calling, _CALLING, "functionCallingConfig.")
    mode = text_at(calling, "mode").upper()
    names = texts_at(calling, key_of(calling, "allowedFunctionNames"))
    if mode == "ANY" and len(names) == 1 and names[0]:
        return ToolChoice("named", names[0])
    if names:
        note_allowed(findings, names)
    if mode == "VALIDATED":
        findings.append(Finding("tool_choice_ignored", "calls are not constrained to their schemas"))
    return _MODES.get(mode, ToolChoice())


def _parts(reply: Reply) -> list[dict[str, Any]]:
    """Thought, text and calls; never none at all. What follows the thought carries it on, sealed."""
    message = reply.message
    parts: list[dict[str, Any]] = [
        {"functionCall": {"id": c.id, "name": c.name, "args": object_fragment(function_arguments(c).strip(SPACE))}}
        for c in message.tool_calls
    ]
    if message.content or not (parts or message.reasoning):
        parts.insert(0, {"text": message.content})
    if message.reasoning:
        bearer = next((part for part in parts if "functionCall" in part), parts[0] if parts else None)
        if bearer is not None:
            bearer["thoughtSignature"] = seal(message.reasoning)
        parts.insert(0, {"text": message.reasoning, "thought": True, "thoughtSignature": signature(reply.id)})
    return parts


def _cut(part: dict[str, Any], piece: int) -> Iterator[dict[str, Any]]:
    """A text part in pieces; its signature comes with the last one."""
    texts = list(sse.cut(part.get("text", ""), piece))
    if len(texts) < 2:
        yield part
        return
    flag = {"thought": True} if "thought" in part else {}
    for text in texts[:-1]:
        yield {"text": text, **flag}
    yield {**part, "text": texts[-1]}


def _body(reply: Reply, call: Call, parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(reply.usage),
        "modelVersion": reply.model or call.model,
        "responseId": reply.id,
    }


def _finish(reply: Reply) -> str:
    return "MAX_TOKENS" if reply.finish == "length" else "STOP"


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": usage.completion_tokens,
        "totalTokenCount": usage.prompt_tokens + usage.completion_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
    }


def _error(error: GatewayError) -> dict[str, Any]:
    message = _overflow(error) if error.kind == "overflow" else error.message
    inner: dict[str, Any] = {"code": error.status, "message": message, "status": _STATUS[error.kind]}
    if error.retry_after is not None:
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{error.retry_after:g}s"}
        inner["details"] = [retry]
    return {"error": inner}


def _overflow(error: GatewayError) -> str:
    if error.window is None or error.prompt_tokens is None:
        return f"The input token count exceeds the maximum number of tokens allowed. {error.message}"
    return (
        f"The input token count ({error.prompt_tokens}) exceeds the maximum number of tokens allowed ({error.window})."
    )


GEMINI = Gemini()
