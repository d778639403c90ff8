"""OpenAI Responses, as its API reference and the `openai` SDK have it, with what Codex adds.

Invariant: the stream is the documented life cycle of every output item; its last event carries the body of `encode`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects import sse
from harbor_env.gateway.dialects.fields import (
    Json,
    WrongField,
    an_object,
    each_at,
    flag_at,
    integer_at,
    number_at,
    object_at,
    read_at,
    text_at,
    unknown_type,
)
from harbor_env.gateway.dialects.openai_choice import openai_choice
from harbor_env.gateway.dialects.openai_errors import openai_error
from harbor_env.gateway.dialects.protocol import Route
from harbor_env.gateway.dialects.responses_items import SUMMARISE, History
from harbor_env.gateway.dialects.responses_output import item_events, output_items
from harbor_env.gateway.dialects.responses_tools import BUILTINS, ToolBox
from harbor_env.gateway.dialects.unheeded import (
    CONTINUITY,
    note_effort,
    note_parallel,
    refuse_fields,
    unread_fields,
    words,
)
from harbor_env.gateway.types import Call, Finding, Reply, Sampling, Usage

_READ = (
    "input instructions tools model stream max_output_tokens temperature top_p tool_choice parallel_tool_calls "
    "reasoning text truncation previous_response_id"
)
_HARMLESS = (
    "store include metadata user prompt_cache_key prompt_cache_retention safety_identifier service_tier background "
    "client_metadata stream_options max_tool_calls"
)
_KNOWN = words(f"{_READ} {_HARMLESS}")
_REASONING = words("effort summary generate_summary")
_TEXT = words("format")
_STORED = "what the vendor stored is not here, send it in `input` or name a `previous_response_id`"
_REFUSED = {**CONTINUITY, "conversation": _STORED, "prompt": _STORED}


class Responses:
    """Reasoning travels as a summary and, sealed, as `encrypted_content`; it is read back from the seal."""

    name = "responses"
    routes = (
        Route("POST", "/v1/responses", "generate"),
        Route("POST", "/v1/responses/compact", "generate", {"compact": "yes"}),
        Route("POST", "/v1/responses/input_tokens", "count"),
    )
    keepalive = sse.COMMENT

    def decode(self, body: Mapping[str, Any], params: Mapping[str, str]) -> Call:
        refuse_fields(body, _REFUSED)
        findings = _unheeded(body)
        box = ToolBox(findings)
        each_at(body, "tools", box.offer)
        previous = text_at(body, "previous_response_id")
        history = History(box, bool(previous), findings)
        if instructions := text_at(body, "instructions"):
            history.say("system", instructions)
        _read_input(body, history, previous)
        if "compact" in params:
            history.say("user", SUMMARISE)
        messages = history.close()
        if not messages:
            raise WrongField("must say something", "input")
        tools, deferred = box.close()
        return Call(
            messages=messages,
            tools=tools,
            model=text_at(body, "model"),
            stream=flag_at(body, "stream"),
            max_tokens=integer_at(body, "max_output_tokens", 1),
            sampling=Sampling(number_at(body, "temperature"), number_at(body, "top_p")),
            tool_choice=read_at(body, "tool_choice", lambda choice: openai_choice(choice, findings, BUILTINS)),
            thinking=read_at(body, "reasoning", lambda reasoning: _thinking(reasoning, findings)),
            response_schema=read_at(body, "text", lambda text: _schema(text, findings)),
            previous_id=previous,
            findings=tuple(findings),
            deferred_tools=deferred,
            compaction="endpoint" if "compact" in params else "inline" if history.compaction else "",
        )

    def encode(self, reply: Reply, call: Call) -> bytes:
        return orjson.dumps(_final(reply, call))

    def stream(self, reply: Reply, call: Call, piece: int = 0) -> Iterator[bytes]:
        final = _final(reply, call)
        begun = {**final, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        for number, event in enumerate(_events(begun, final, piece)):
            event["sequence_number"] = number
            yield sse.event(event)

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return error.status, orjson.dumps({"error": openai_error(error, "input")})

    def stream_error(self, error: GatewayError) -> bytes:
        """Both of the vendor's forms: SDKs raise on the first, Codex reads the code of the second."""
        inner = openai_error(error, "input")
        flat = {"code": inner["code"], "message": inner["message"], "param": inner["param"]}
        failed = {
            "id": "resp_failed",
            "object": "response",
            "status": "failed",
            "error": {"code": inner["code"] or "invalid_prompt", "message": inner["message"]},
            "output": [],
        }
        return sse.event({"type": "error", "sequence_number": 0, **flat, "error": inner}) + sse.event(
            {"type": "response.failed", "sequence_number": 1, "response": failed}
        )

    def count(self, prompt_tokens: int) -> bytes:
        return orjson.dumps({"object": "response.input_tokens", "input_tokens": prompt_tokens})


def _read_input(body: Mapping[str, Any], history: History, previous: str) -> None:
    given = body.get("input")
    if isinstance(given, str):
        history.say("user", given)
    elif given is None and not previous:
        raise WrongField("must be a string or a list of items", "input")
    else:
        each_at(body, "input", history.add)


def _unheeded(body: Json) -> list[Finding]:
    """Findings about top-level fields."""
    findings = unread_fields(body, _KNOWN)
    note_parallel(findings, body.get("parallel_tool_calls") is False)
    if text_at(body, "truncation") not in ("", "disabled"):
        findings.append(Finding("field_ignored", "truncation"))
    return findings


def _thinking(reasoning: Any, findings: list[Finding]) -> bool | None:
    if reasoning is None:
        return None
    effort = text_at(an_object(reasoning), "effort")
    findings += unread_fields(reasoning, _REASONING, "reasoning.")
    note_effort(findings, "reasoning.effort", "" if effort == "none" else effort)
    return effort != "none" if effort else None


def _schema(text: Any, findings: list[Finding]) -> Mapping[str, Any] | None:
    if text is None:
        return None
    wanted = object_at(an_object(text), "format")
    findings += unread_fields(text, _TEXT, "text.")
    kind = wanted.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        return object_at(wanted, "schema")
    raise unknown_type(kind)


def _final(reply: Reply, call: Call) -> dict[str, Any]:
    output = output_items(reply, call)
    if call.compaction == "endpoint":
        return {
            "id": reply.id,
            "object": "response.compaction",
            "created_at": reply.created,
            "output": output,
            "usage": _usage(reply.usage),
        }
    cut = reply.finish == "length"
    choice = call.tool_choice
    return {
        "id": reply.id,
        "object": "response",
        "created_at": reply.created,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "max_output_tokens": call.max_tokens,
        "metadata": {},
        "model": reply.model or call.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": call.previous_id or None,
        "temperature": call.sampling.temperature,
        "tool_choice": {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode,
        "tools": [],
        "top_p": call.sampling.top_p,
        "usage": _usage(reply.usage),
    }


def _events(begun: dict[str, Any], final: dict[str, Any], piece: int) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(final["output"]):
        for event in item_events(item, piece):
            event["output_index"] = index
            yield event
    ending = "response.incomplete" if final.get("status") == "incomplete" else "response.completed"
    yield {"type": ending, "response": final}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


RESPONSES = Responses()
