"""Replies as the `renderers` library reads them, for families whose call grammar is only known there.

Invariant: what the library could not read as a call stays text, with a finding; arguments keep the text they were
sampled as where that text can be found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harbor_env.gateway.rendering import Parsed
from harbor_env.gateway.rendering.conversation import tool_dict
from harbor_env.gateway.rendering.grammars.reading import dump_json, shown_calls
from harbor_env.gateway.rendering.guard import Guard
from harbor_env.gateway.rendering.library_bridge import RAISED
from harbor_env.gateway.types import Finding, Message, Tool, ToolCall

_NONE = Guard(())


def read_reply(library: Any, ids: list[int], prompt_tail: list[int], tools: Sequence[Tool], text: str) -> Parsed:
    """`text` is the reply as it stands: what is given where the library cannot read it at all."""
    try:
        read = library.parse_response(ids, tools=[tool_dict(tool, _NONE) for tool in tools], prompt_ids=prompt_tail)
    except RAISED as error:
        return Parsed(Message("assistant", text), (Finding("reply_unreadable", f"kept as text: {error}"),))
    calls: list[ToolCall] = []
    findings: list[Finding] = []
    content = read.content or ""
    for attempt in read.tool_calls:
        if attempt.name and attempt.status.value in ("ok", "unknown_tool"):
            calls.append(ToolCall("", attempt.name, _arguments(attempt), attempt.id or ""))
        elif attempt.name and attempt.raw and attempt.status.value == "invalid_json":
            calls.append(ToolCall("", attempt.name, _raw_arguments(attempt.raw), attempt.id or ""))
            findings.append(Finding("arguments_malformed", f"{attempt.name}: passed on as sampled"))
        else:
            content = "\n".join(filter(None, [content, attempt.raw]))
            findings.append(Finding("call_malformed", f"{attempt.status.value}: a call that cannot be read stays text"))
    shown, replaced = shown_calls(calls, tools)
    message = Message("assistant", content, read.reasoning_content or "", tuple(shown))
    return Parsed(message, (*findings, *replaced))


def _arguments(attempt: Any) -> str:
    """The arguments' own text where it is JSON inside the sampled block, else the value as JSON."""
    if isinstance(attempt.arguments, str):
        return attempt.arguments
    raw, wanted = attempt.raw or "", attempt.arguments or {}
    decoder = json.JSONDecoder(strict=False)
    at = raw.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(raw, at)
        except ValueError:
            value, end = None, at + 1
        if value == wanted:
            return raw[at:end]
        at = raw.find("{", at + 1)
    return dump_json(wanted)


def _raw_arguments(raw: str) -> str:
    at = raw.find("{")
    return raw[at:] if at >= 0 else raw
