"""Qwen's XML calls: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>`.

Values are bare text, typed by the tool's schema; one newline on each side of a value belongs to the grammar. A value
ends at the `</parameter>` that is followed by more structure, so the tag may stand inside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harbor_env.gateway.rendering.grammars.reading import Reading, arguments_mapping, dump_json, read_calls
from harbor_env.gateway.rendering.grammars.schema import parameter_schemas, typed
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.types import Tool, ToolCall

_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>")
_LINE_FUNCTION = re.compile(r"^<function=([^<>\n]+)>", re.MULTILINE)
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>")
_FUNCTION_END = re.compile(r"\s*(</function>)?\s*")
_VALUE_END = r"</parameter>(?=\s*(?:<parameter=|</function>|{closer}|$))"


@dataclass(frozen=True, slots=True)
class QwenXml:
    opener: str = "<tool_call>"
    closer: str = "</tool_call>"
    name: str = "qwen-xml"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        read_call = partial(self._read_call, tools=tools)
        if self.opener not in text and (opened := self._opened(text, tools)) != text:
            reading = read_calls(opened, self.opener, read_call, tools)
            if reading.calls and not reading.findings:
                reading.note("call_untidy", f"no {clear(self.opener)} before a function of a tool that is offered")
                return reading
        return read_calls(text, self.opener, read_call, tools)

    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool], joint: str = "\n") -> str:
        return joint.join(_written(call, tools) for call in calls)

    def _opened(self, text: str, tools: Sequence[Tool]) -> str:
        """The text with the opener put before functions of known tools at the start of a line, which models forget."""
        names = {tool.name for tool in tools}
        return _LINE_FUNCTION.sub(lambda found: (self.opener if found.group(1) in names else "") + found.group(), text)

    def _read_call(self, text: str, found: int, reading: Reading, *, tools: Sequence[Tool]) -> int:
        function = _FUNCTION.match(text, found + len(self.opener))
        if not function:
            return reading.keep(text, found, self.closer)
        name = clear(function.group(1)).strip()
        schemas = parameter_schemas(tools, name)
        arguments: dict[str, Any] = {}
        position = function.end()
        while parameter := _PARAMETER.match(text, position):
            stop, position = self._value_end(text, parameter.end())
            if stop < 0:
                return reading.keep(text, found, self.closer)
            if stop == position:
                reading.note("parameter_unclosed", f"{name}: ended with the call")
            key = clear(parameter.group(1)).strip()
            value = text[parameter.end() : stop].removeprefix("\n").removesuffix("\n")
            arguments[key] = typed(clear(value), schemas.get(key))
        end = _FUNCTION_END.match(text, position)
        position = end.end() if end else position
        closed = text.startswith(self.closer, position)
        if not closed and not (end and end.group(1)):
            return reading.keep(text, found, self.closer)
        reading.call(name, dump_json(arguments))
        return position + len(self.closer) if closed else position

    def _value_end(self, text: str, start: int) -> tuple[int, int]:
        """Where a value stops and where what follows it starts: one place where the value has no end tag of its own,
        before the end of the function or of the call; (-1, -1) where neither ends."""
        if end := re.compile(_VALUE_END.format(closer=re.escape(self.closer))).search(text, start):
            return end.start(), end.end()
        ends = [at for at in (text.find("</function>", start), text.find(self.closer, start)) if at >= 0]
        return (min(ends), min(ends)) if ends else (-1, -1)


def _written(call: ToolCall, tools: Sequence[Tool]) -> str:
    arguments = arguments_mapping(call, tools)
    parts = [f"<parameter={key}>\n{_bare(value)}\n</parameter>\n" for key, value in arguments.items()]
    return f"<tool_call>\n<function={call.name}>\n{''.join(parts)}</function>\n</tool_call>"


def _bare(value: Any) -> str:
    """Text as it is, structures as JSON, the rest in Python's spelling."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
