"""GLM's calls: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...</tool_call>`.

Values are bare text, typed by the tool's schema. Newlines between the parts belong to the grammar, those inside a value
to the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harbor_env.gateway.rendering.grammars.reading import Reading, arguments_mapping, dump_json, read_calls
from harbor_env.gateway.rendering.grammars.schema import parameter_schemas, typed
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.types import Tool, ToolCall

_NAME = re.compile(r"\s*([^\s<>{}\ufdd0]+)\s*")


@dataclass(frozen=True, slots=True)
class GlmXml:
    """`tags`: the four tags around keys and values, as decoded text shows them."""

    opener: str = "<tool_call>"
    closer: str = "</tool_call>"
    tags: tuple[str, str, str, str] = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
    name: str = "glm-xml"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        return read_calls(text, self.opener, partial(self._read_call, tools=tools), tools)

    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool], joint: str = "\n") -> str:
        return joint.join(_written(call, tools) for call in calls)

    def _read_call(self, text: str, found: int, reading: Reading, *, tools: Sequence[Tool]) -> int:
        named = _NAME.match(text, found + len(self.opener))
        if not named:
            return reading.keep(text, found, self.closer)
        name = named.group(1)
        schemas = parameter_schemas(tools, name)
        arguments: dict[str, Any] = {}
        position = named.end()
        while pair := self._pair().match(text, position):
            key = clear(pair.group(1)).strip()
            arguments[key] = typed(clear(pair.group(2)), schemas.get(key))
            position = pair.end()
        if not text.startswith(self.closer, position):
            return reading.keep(text, found, self.closer)
        reading.call(name, dump_json(arguments))
        return position + len(self.closer)

    def _pair(self) -> re.Pattern[str]:
        key, key_end, value, value_end = map(re.escape, self.tags)
        more = rf"(?={key}|{re.escape(self.closer)})"
        return re.compile(rf"{key}(.*?){key_end}\s*{value}(.*?){value_end}\s*{more}", re.DOTALL)


def glm_xml(marker: Callable[[str], str]) -> GlmXml:
    first, second, third, fourth = map(marker, GlmXml().tags)
    return GlmXml(marker("<tool_call>"), marker("</tool_call>"), (first, second, third, fourth))


def _written(call: ToolCall, tools: Sequence[Tool]) -> str:
    arguments = arguments_mapping(call, tools)
    pairs = [f"<arg_key>{key}</arg_key>\n<arg_value>{_bare(value)}</arg_value>\n" for key, value in arguments.items()]
    return f"<tool_call>{call.name}\n{''.join(pairs)}</tool_call>"


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
