"""Qwen's XML calls: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>`.

Values are bare text, typed by the tool's schema; one newline on each side of a value belongs to the grammar. A value
ends at the `</parameter>` that is followed by more structure, so the tag may stand inside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harbor_env.gateway.rendering.grammars import Reading
from harbor_env.gateway.rendering.grammars.hermes import dump_json, join_content, unwrap_custom, wrapped_arguments
from harbor_env.gateway.rendering.grammars.schema import parameter_schemas, typed
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.types import Finding, Tool, ToolCall

_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>")
_VALUE_END = r"</parameter>(?=\s*(?:<parameter=|</function>|{closer}|$))"


@dataclass(frozen=True, slots=True)
class QwenXml:
    opener: str = "<tool_call>"
    closer: str = "</tool_call>"
    name: str = "qwen-xml"
    gap: str = "\n\n"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        reading = Reading()
        kept: list[str] = []
        position = 0
        while (found := text.find(self.opener, position)) >= 0:
            kept.append(text[position:found])
            position = self._read_call(text, found, kept, reading, tools)
        kept.append(text[position:])
        reading.content = join_content(kept, bool(reading.calls))
        reading.calls = unwrap_custom(reading.calls, tools)
        return reading

    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool]) -> str:
        return "\n".join(self._write_call(call, tools) for call in calls)

    def _read_call(self, text: str, found: int, kept: list[str], reading: Reading, tools: Sequence[Tool]) -> int:
        """Read the call that opens at `found`; where the text after it starts."""
        function = _FUNCTION.match(text, found + len(self.opener))
        if not function:
            return self._as_text(text, found, kept, reading)
        name = clear(function.group(1)).strip()
        schemas = parameter_schemas(tools, name)
        arguments: dict[str, Any] = {}
        position = function.end()
        ends = re.compile(_VALUE_END.format(closer=re.escape(self.closer)))
        while parameter := _PARAMETER.match(text, position):
            end = ends.search(text, parameter.end())
            stop, position = (end.start(), end.end()) if end else self._open_end(text, parameter.end())
            if stop < 0:
                return self._as_text(text, found, kept, reading)
            if not end:
                reading.findings.append(Finding("parameter_unclosed", f"{name}: ended with the call"))
            key = clear(parameter.group(1)).strip()
            arguments[key] = typed(clear(_unwrapped(text[parameter.end() : stop])), schemas.get(key))
        tail = re.compile(r"\s*(?:</function>)?\s*").match(text, position)
        position = tail.end() if tail else position
        if not text.startswith(self.closer, position):
            if "</function>" not in (tail.group() if tail else ""):
                return self._as_text(text, found, kept, reading)
        else:
            position += len(self.closer)
        reading.calls.append(ToolCall("", name, dump_json(arguments)))
        return position

    def _open_end(self, text: str, start: int) -> tuple[int, int]:
        """Where a value without its own end tag stops: with the function or the call; -1 where neither ends."""
        ends = [at for at in (text.find("</function>", start), text.find(self.closer, start)) if at >= 0]
        return (min(ends), min(ends)) if ends else (-1, -1)

    def _as_text(self, text: str, found: int, kept: list[str], reading: Reading) -> int:
        close = text.find(self.closer, found)
        end = close + len(self.closer) if close >= 0 else len(text)
        kept.append(text[found:end])
        what = "call_unclosed" if close < 0 else "call_malformed"
        reading.findings.append(Finding(what, "a call that cannot be read stays text"))
        return end

    def _write_call(self, call: ToolCall, tools: Sequence[Tool]) -> str:
        try:
            arguments = json.loads(wrapped_arguments(call, tools))
        except ValueError:
            arguments = {"arguments": call.arguments}
        if not isinstance(arguments, dict):
            arguments = {"arguments": arguments}
        parts = [f"<parameter={key}>\n{_bare(value)}\n</parameter>\n" for key, value in arguments.items()]
        return f"<tool_call>\n<function={call.name}>\n{''.join(parts)}</function>\n</tool_call>"


def _unwrapped(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")


def _bare(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
