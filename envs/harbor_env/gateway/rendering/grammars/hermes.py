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

from harbor_env.gateway.rendering.grammars.json_call import ScannedCall, scan_call
from harbor_env.gateway.rendering.grammars.reading import Reading, arguments_text, read_calls
from harbor_env.gateway.types import Tool, ToolCall

_BRACES = re.compile(r"[\s}]*")


def write_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n</tool_call>'


@dataclass(frozen=True, slots=True)
class Hermes:
    """`opener` and `closer` as decoded text shows them: marked where they are tokens of their own."""

    opener: str = "<tool_call>"
    closer: str = "</tool_call>"
    name: str = "hermes"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        return read_calls(text, self.opener, self._read_call, tools)

    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool], joint: str = "\n") -> str:
        return joint.join(write_call(call.name, arguments_text(call, tools)) for call in calls)

    def _read_call(self, text: str, found: int, reading: Reading) -> int:
        start = found + len(self.opener)
        scanned = scan_call(text, start)
        if scanned.name and (end := self._end(text, scanned, reading)):
            reading.call(scanned.name, scanned.arguments)
            if scanned.rewritten:
                reading.note("arguments_rewritten", "control characters in a string were not escaped")
            return end
        close = text.find(self.closer, start)
        if scanned.name and scanned.arguments_start and close >= 0 and not scanned.open_quote:
            raw = text[scanned.arguments_start : close].strip().removesuffix("}")
            reading.call(scanned.name, raw.strip())
            reading.note("arguments_malformed", f"{scanned.name}: passed on as sampled")
            return close + len(self.closer)
        return reading.keep(text, found, self.closer)

    def _end(self, text: str, scanned: ScannedCall, reading: Reading) -> int:
        """Where the text after a call starts whose arguments were read; 0 where it is no whole call.

        One brace too few or too many before the end tag is forgiven; without an end tag the JSON must be whole.
        """
        braces = _BRACES.match(text, scanned.end)
        end = braces.end() if braces and scanned.end else 0
        if not end or not text.startswith(self.closer, end):
            return scanned.end if scanned.complete else 0
        if not scanned.complete or text[scanned.end : end].strip():
            reading.note("call_untidy", "a brace too many or too few")
        return end + len(self.closer)
