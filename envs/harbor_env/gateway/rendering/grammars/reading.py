"""Walking over a text with calls in it: what is no call stays content, in order.

Invariant: every character is part of a call, part of the content, or white space next to a call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harbor_env.gateway.rendering.conversation import CUSTOM_ARGUMENT, custom_names
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.types import Finding, Tool, ToolCall


@dataclass(slots=True)
class Reading:
    """What a grammar found in a text: content around the calls, the calls in order, findings.

    `kept` are the pieces of content so far.
    """

    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def call(self, name: str, arguments: str) -> None:
        self.calls.append(ToolCall("", clear(name).strip(), clear(arguments)))

    def note(self, code: str, detail: str) -> None:
        self.findings.append(Finding(code, detail))

    def keep(self, text: str, found: int, closer: str) -> int:
        """Keep a call that cannot be read, from its opener to its closer, as content; where the rest starts."""
        close = text.find(closer, found)
        end = close + len(closer) if close >= 0 else len(text)
        self.kept.append(text[found:end])
        self.note("call_unclosed" if close < 0 else "call_malformed", "a call that cannot be read stays text")
        return end


def read_calls(text: str, opener: str, read_call: Callable[[str, int, Reading], int], tools: Sequence[Tool]) -> Reading:
    """`read_call(text, where the opener stands, reading)` reads one call and tells where the text after it starts."""
    reading = Reading()
    kept = reading.kept
    position = 0
    while (found := text.find(opener, position)) >= 0:
        kept.append(text[position:found])
        position = read_call(text, found, reading)
    kept.append(text[position:])
    if reading.calls:
        reading.content = clear("\n".join(part for piece in kept if (part := piece.strip())))
    else:
        reading.content = clear("".join(kept))
    reading.calls, findings = shown_calls(reading.calls, tools)
    reading.findings += findings
    return reading


def shown_calls(calls: Sequence[ToolCall], tools: Sequence[Tool]) -> tuple[list[ToolCall], list[Finding]]:
    """Calls as a harness can be shown them: free text unwrapped, and nothing in them that UTF-8 cannot carry."""
    custom = custom_names(tools)
    read = [_unwrapped(call) if call.name in custom else call for call in calls]
    shown = [ToolCall(*map(_unicode, (call.id, call.name, call.arguments, call.native_id))) for call in read]
    if shown == read:
        return read, []
    return shown, [Finding("call_not_unicode", "half of a surrogate pair, which no text can hold, was replaced")]


def _unwrapped(call: ToolCall) -> ToolCall:
    """A call of a free-text tool carries the text itself."""
    try:
        decoded = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call
    text = decoded.get(CUSTOM_ARGUMENT) if isinstance(decoded, dict) else None
    return ToolCall(call.id, call.name, text, call.native_id) if isinstance(text, str) else call


def _unicode(text: str) -> str:
    """The text with halves of surrogate pairs replaced: JSON can spell them, UTF-8 cannot carry them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def arguments_text(call: ToolCall, tools: Sequence[Tool]) -> str:
    """A call's arguments as JSON text: free text in its one field, none as an empty object, the rest as it is."""
    if call.name in custom_names(tools):
        return json.dumps({CUSTOM_ARGUMENT: call.arguments}, ensure_ascii=False)
    return call.arguments.strip() or "{}"


def arguments_mapping(call: ToolCall, tools: Sequence[Tool]) -> dict[str, Any]:
    """A call's arguments for grammars that write them one by one; what is no object under one name."""
    try:
        arguments = json.loads(arguments_text(call, tools))
    except (ValueError, RecursionError):
        arguments = call.arguments
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def dump_json(value: Any) -> str:
    """JSON text that any UTF-8 writer can take: characters are kept, half of a surrogate pair is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
