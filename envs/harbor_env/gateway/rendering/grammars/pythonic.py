"""Liquid's calls: `<|tool_call_start|>[name(key="value", n=1), other()]<|tool_call_end|>`, a list in Python's spelling.

Templates of this family print strings between quotes without escaping them, so a quote ends a string only where more
structure follows it. JSON's `true`, `false` and `null` are read beside Python's. A list of JSON objects is read too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harbor_env.gateway.rendering.grammars import Reading
from harbor_env.gateway.rendering.grammars.hermes import (
    dump_json,
    join_content,
    scan_object,
    unwrap_custom,
    wrapped_arguments,
)
from harbor_env.gateway.rendering.grammars.literals import Literals, Unreadable
from harbor_env.gateway.rendering.grammars.schema import parameter_schemas
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.types import Finding, Tool, ToolCall

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")


@dataclass(frozen=True, slots=True)
class Pythonic:
    opener: str = "<|tool_call_start|>"
    closer: str = "<|tool_call_end|>"
    name: str = "pythonic"
    gap: str = ""

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        reading = Reading()
        kept: list[str] = []
        position = 0
        while (found := text.find(self.opener, position)) >= 0:
            kept.append(text[position:found])
            position = self._read_calls(text, found, kept, reading, tools)
        kept.append(text[position:])
        reading.content = join_content(kept, bool(reading.calls))
        reading.calls = unwrap_custom(reading.calls, tools)
        return reading

    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool]) -> str:
        written = ", ".join(f"{call.name}({_keywords(call, tools)})" for call in calls)
        return f"<|tool_call_start|>[{written}]<|tool_call_end|>"

    def _read_calls(self, text: str, found: int, kept: list[str], reading: Reading, tools: Sequence[Tool]) -> int:
        """Read the list of calls that opens at `found`; where the text after it starts."""
        start = found + len(self.opener)
        try:
            calls, end = _calls(text, start, tools)
        except Unreadable:
            close = text.find(self.closer, start)
            end = close + len(self.closer) if close >= 0 else len(text)
            kept.append(text[found:end])
            what = "call_unclosed" if close < 0 else "call_malformed"
            reading.findings.append(Finding(what, "a call that cannot be read stays text"))
            return end
        reading.calls += calls
        end += len(text[end:]) - len(text[end:].lstrip())
        return end + len(self.closer) if text.startswith(self.closer, end) else end


def _calls(text: str, start: int, tools: Sequence[Tool]) -> tuple[list[ToolCall], int]:
    scan = Literals(text, start)
    bracket = scan.take("[")
    calls: list[ToolCall] = []
    while not scan.at("]"):
        calls.append(_json_call(scan) if scan.at("{") else _call(scan, tools))
        if not scan.take(","):
            break
    if bracket and not scan.take("]"):
        raise Unreadable
    if not calls:
        raise Unreadable
    return calls, scan.position


def _call(scan: Literals, tools: Sequence[Tool]) -> ToolCall:
    name = clear(scan.word(_NAME))
    scan.need("(")
    order = iter(parameter_schemas(tools, name))
    arguments: dict[str, Any] = {}
    while not scan.at(")"):
        key = scan.keyword(_NAME) or next(order, None)
        if key is None:
            raise Unreadable
        arguments[clear(key)] = scan.value()
        if not scan.take(","):
            break
    scan.need(")")
    return ToolCall("", name, dump_json(arguments))


def _json_call(scan: Literals) -> ToolCall:
    scanned = scan_object(scan.text, scan.position)
    if not scanned.complete or not scanned.name:
        raise Unreadable
    scan.position = scanned.end
    return ToolCall("", clear(scanned.name), clear(scanned.arguments))


def _keywords(call: ToolCall, tools: Sequence[Tool]) -> str:
    try:
        arguments = json.loads(wrapped_arguments(call, tools))
    except ValueError:
        arguments = {"arguments": call.arguments}
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())
