"""Hermes calls: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, a JSON object between tags.

The end of a call is the end of its JSON, so a tag inside a string does not end it. `arguments` is the JSON as sampled,
spacing and all; where only a raw control character keeps it from being JSON it is written anew. A call whose name is
read but whose arguments are no JSON is a call with the raw text, for harnesses answer that with an error the model
sees. Where a quote inside a string was not escaped nobody can tell where the argument ends: that is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harbor_env.gateway.rendering.conversation import CUSTOM_ARGUMENT, custom_names
from harbor_env.gateway.rendering.grammars import Reading
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.types import Finding, Tool, ToolCall

_SPACE = re.compile(r"\s*")
_BRACES = re.compile(r"[\s}]*")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_LENIENT = json.JSONDecoder(strict=False, parse_constant=_refuse)
_STRICT = json.JSONDecoder(parse_constant=_refuse)


def write_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n</tool_call>'


@dataclass(frozen=True, slots=True)
class Hermes:
    """`opener` and `closer` as decoded text shows them: marked where they are tokens of their own."""

    opener: str = "<tool_call>"
    closer: str = "</tool_call>"
    name: str = "hermes"
    gap: str = "\n"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        reading = Reading()
        kept: list[str] = []
        position = 0
        while (found := text.find(self.opener, position)) >= 0:
            kept.append(text[position:found])
            position = self._read_call(text, found, kept, reading)
        kept.append(text[position:])
        reading.content = join_content(kept, bool(reading.calls))
        reading.calls = unwrap_custom(reading.calls, tools)
        return reading

    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool]) -> str:
        return "\n".join(write_call(call.name, wrapped_arguments(call, tools)) for call in calls)

    def _read_call(self, text: str, found: int, kept: list[str], reading: Reading) -> int:
        """Read the call that opens at `found`; where the text after it starts."""
        start = found + len(self.opener)
        scanned = scan_object(text, start)
        if scanned.name and (end := self._call_end(text, scanned, reading)):
            reading.calls.append(ToolCall("", clear(scanned.name), clear(scanned.arguments)))
            if scanned.repaired:
                reading.findings.append(
                    Finding("arguments_rewritten", "control characters in a string were not escaped")
                )
            return end
        close = text.find(self.closer, start)
        end = close + len(self.closer) if close >= 0 else len(text)
        if scanned.name and scanned.arguments_start and close >= 0 and not scanned.open_quote:
            raw = text[scanned.arguments_start : close].strip().removesuffix("}")
            reading.calls.append(ToolCall("", clear(scanned.name), clear(raw).strip()))
            reading.findings.append(Finding("arguments_malformed", f"{clear(scanned.name)}: passed on as sampled"))
            return end
        kept.append(text[found:end])
        what = "call_unclosed" if close < 0 else "call_malformed"
        reading.findings.append(Finding(what, "a call that cannot be read stays text"))
        return end

    def _call_end(self, text: str, scanned: Scanned, reading: Reading) -> int:
        """Where the text after a call starts whose arguments were read; 0 where it is no whole call.

        One brace too few or too many before the end tag is forgiven; without an end tag the JSON must be whole.
        """
        braces = _BRACES.match(text, scanned.end)
        end = braces.end() if braces and scanned.end else 0
        if not end or not text.startswith(self.closer, end):
            return scanned.end if scanned.complete else 0
        if not scanned.complete or text[scanned.end : end].strip():
            reading.findings.append(Finding("call_untidy", "a brace too many or too few"))
        return end + len(self.closer)


@dataclass(slots=True)
class Scanned:
    """A call's JSON object as far as it could be read."""

    name: str = ""
    arguments: str = "{}"
    arguments_start: int = 0
    end: int = 0
    complete: bool = False
    repaired: bool = False
    open_quote: bool = False


def scan_object(text: str, start: int) -> Scanned:
    """Read `{"name": ..., "arguments": ...}` at `start`, keys in any order, keeping the arguments' own text."""
    scanned = Scanned()
    position = _skip(text, start)
    if not text.startswith("{", position):
        return scanned
    position = _skip(text, position + 1)
    while text.startswith('"', position):
        try:
            key, position = _LENIENT.raw_decode(text, position)
            position = _skip(text, position)
            if not text.startswith(":", position):
                return scanned
            position = _member(text, key, _skip(text, position + 1), scanned)
        except (ValueError, RecursionError) as error:
            scanned.open_quote = _inner_quote(text, error)
            return scanned
        position = _skip(text, position)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
    if text.startswith("}", position):
        scanned.end = position + 1
        scanned.complete = True
    else:
        scanned.open_quote = text[:position].rstrip().endswith('"')
        scanned.end = position if scanned.arguments_start and not scanned.open_quote else 0
    return scanned


def _member(text: str, key: str, position: int, scanned: Scanned) -> int:
    """Take one member's value into `scanned`; where the value ends."""
    if key in ("arguments", "parameters"):
        scanned.arguments_start = position
    value, end = _LENIENT.raw_decode(text, position)
    if key == "name" and isinstance(value, str):
        scanned.name = value
    elif key in ("arguments", "parameters"):
        scanned.arguments = value if isinstance(value, str) else text[position:end]
        if not _strict(scanned.arguments) and not isinstance(value, str):
            scanned.arguments = dump_json(value)
            scanned.repaired = True
    return end


def _strict(text: str) -> bool:
    try:
        _STRICT.decode(clear(text))
    except (ValueError, RecursionError):
        return False
    return True


def dump_json(value: Any) -> str:
    """JSON text that any UTF-8 writer can take: characters are kept, half of a surrogate pair is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _inner_quote(text: str, error: Exception) -> bool:
    """Whether reading failed right after a string: its closing quote was one that should have been escaped."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return "delimiter" in error.msg and text[: error.pos].rstrip().endswith('"')


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def join_content(kept: Sequence[str], calls: bool) -> str:
    """Content from the text around calls; the white space next to a call belongs to the grammar."""
    if not calls:
        return clear("".join(kept))
    return clear("\n".join(part for part in (piece.strip() for piece in kept) if part))


def unwrap_custom(calls: Sequence[ToolCall], tools: Sequence[Tool]) -> list[ToolCall]:
    """Calls of free-text tools carry the text itself."""
    custom = custom_names(tools)
    return [ToolCall(c.id, c.name, _free_text(c.arguments), c.native_id) if c.name in custom else c for c in calls]


def _free_text(arguments: str) -> str:
    try:
        decoded = json.loads(arguments)
    except ValueError:
        return arguments
    text = decoded.get(CUSTOM_ARGUMENT) if isinstance(decoded, dict) else None
    return text if isinstance(text, str) else arguments


def wrapped_arguments(call: ToolCall, tools: Sequence[Tool]) -> str:
    """A call's arguments as JSON text: free text in its one field, none as an empty object, the rest as it is."""
    if call.name in custom_names(tools):
        return json.dumps({CUSTOM_ARGUMENT: call.arguments}, ensure_ascii=False)
    return call.arguments.strip() or "{}"
