"""Knowing a family by what its chat template prints, so that a local copy, a rename or a reworded template is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harbor_env.errors import RenderingError, UsageError
from harbor_env.gateway.rendering.jinja import Template
from harbor_env.gateway.rendering.probes import TOOL
from harbor_env.gateway.rendering.tokens import Tokens

_SYSTEM = {"role": "system", "content": "print-system"}
_USER = {"role": "user", "content": "print-user"}
_CALL = {
    "id": "functions.f:0",
    "type": "function",
    "function": {"name": "f", "arguments": {"a": "print-value", "b": 2}},
}
_RESULT = {"role": "tool", "content": "print-result", "tool_call_id": "functions.f:0", "name": "f"}
_OTHER_CALL = {**_CALL, "id": "functions.f:1"}
_OTHER_RESULT = {**_RESULT, "tool_call_id": "functions.f:1"}
_TOOL = {
    "type": "function",
    "function": {"name": TOOL.name, "description": TOOL.description, "parameters": dict(TOOL.parameters)},
}


def _thought(text: str) -> dict[str, str]:
    return {"reasoning_content": text, "reasoning": text, "thinking": text}


_Entries = Sequence[dict[str, Any]]
_PRINTS: tuple[tuple[_Entries, _Entries], ...] = (
    ([_USER], []),
    ([_SYSTEM, _USER, {"role": "assistant", "content": "print-reply"}, _USER], []),
    ([_SYSTEM, _USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}, _RESULT], [_TOOL]),
    ([_USER, {"role": "assistant", "content": "text", "tool_calls": [_CALL, _OTHER_CALL]}, _RESULT, _OTHER_RESULT], []),
    ([_USER, {"role": "assistant", "content": "text", "tool_calls": [_CALL], **_thought("why")}, _RESULT], []),
)


class Prints:
    """What a template prints for a few conversations, as ids; None for one it refuses, which tells nothing."""

    def __init__(self, tokens: Tokens, template: Template, variables: Mapping[str, Any]) -> None:
        self._tokens = tokens
        self._variables = variables
        self._printed = [self._print(template, *asked) for asked in _PRINTS]

    def same(self, family: str) -> bool:
        """Whether the library's renderer of a family gives the same ids."""
        from harbor_env.gateway.rendering.library import rendered_by

        try:
            rendered = rendered_by(self._tokens, family, self._variables)
            told = [(printed, asked) for printed, asked in zip(self._printed, _PRINTS, strict=True) if printed]
            return len(told) > 1 and all(printed == rendered.ids(*asked) for printed, asked in told)
        except (RenderingError, UsageError):
            return False

    def _print(self, template: Template, messages: _Entries, tools: _Entries) -> list[int] | None:
        try:
            return self._tokens.encode(template(messages, tools, self._variables))
        except RenderingError:
            return None
