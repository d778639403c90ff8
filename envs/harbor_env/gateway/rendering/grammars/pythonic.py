"""Liquid's calls: `<|tool_call_start|>[name(key="value", n=1), other()]<|tool_call_end|>`, a list in Python's spelling.

Templates of this family print strings between quotes without escaping them, so a quote ends a string only where more
structure follows it. JSON's `true`, `false` and `null` are read beside Python's. A list of JSON objects is read too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harbor_env.gateway.rendering.grammars.json_call import scan_call
from harbor_env.gateway.rendering.grammars.literals import Literals, Unreadable
from harbor_env.gateway.rendering.grammars.reading import Reading, arguments_mapping, dump_json, read_calls
from harbor_env.gateway.rendering.grammars.schema import parameter_schemas
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.types import Tool, ToolCall

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")


@dataclass(frozen=True, slots=True)
class Pythonic:
    opener: str = "<|tool_call_start|>"
    closer: str = "<|tool_call_end|>"
    name: str = "pythonic"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        return read_calls(text, self.opener, partial(self._read_calls, tools=tools), tools)

    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool], joint: str = "") -> str:
        written = ", ".join(f"{call.name}({_keywords(call, tools)})" for call in calls)
        return f"<|tool_call_start|>[{written}]<|tool_call_end|>"

    def _read_calls(self, text: str, found: int, reading: Reading, *, tools: Sequence[Tool]) -> int:
        try:
            calls, end = _calls(text, found + len(self.opener), tools)
        except Unreadable:
            return reading.keep(text, found, self.closer)
        reading.calls += calls
        closer = Literals(text, end)
        return closer.position if closer.take(self.closer) else end


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
    scanned = scan_call(scan.text, scan.position)
    if not scanned.complete or not scanned.name:
        raise Unreadable
    scan.position = scanned.end
    return ToolCall("", clear(scanned.name), clear(scanned.arguments))


def _keywords(call: ToolCall, tools: Sequence[Tool]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments_mapping(call, tools).items())
