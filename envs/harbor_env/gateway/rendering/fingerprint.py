"""Knowing a family by what its chat template prints, so that a local copy, a rename or a reworded template is known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from harbor_env.errors import RenderingError, UsageError
from harbor_env.gateway.rendering.jinja import Template
from harbor_env.gateway.rendering.measure import TOOL
from harbor_env.gateway.rendering.tokens import Tokens

_SYSTEM = {"role": "system", "content": "print-system"}
_USER = {"role": "user", "content": "print-user"}
_CALL = {
    "id": "functions.f:0",
    "type": "function",
    "function": {"name": "f", "arguments": {"a": "print-value", "b": 2}},
}
_RESULT = {"role": "tool", "content": "print-result", "tool_call_id": "functions.f:0", "name": "f"}
_TOOL = {
    "type": "function",
    "function": {"name": TOOL.name, "description": TOOL.description, "parameters": dict(TOOL.parameters)},
}


def _thought(text: str) -> dict[str, str]:
    return {"reasoning_content": text, "reasoning": text, "thinking": text}


_PRINTS: tuple[tuple[list[dict[str, Any]], bool], ...] = (
    ([_USER], False),
    ([_SYSTEM, _USER, {"role": "assistant", "content": "print-reply"}, _USER], False),
    ([_SYSTEM, _USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}, _RESULT, _RESULT], True),
    ([_USER, {"role": "assistant", "content": "text", "tool_calls": [_CALL], **_thought("why")}, _RESULT], False),
)


def same_prints(tokens: Tokens, family: str, template: Template, variables: Mapping[str, Any]) -> bool:
    """Whether the library's renderer and the template give the same ids for the same conversations."""
    from harbor_env.gateway.rendering.library import rendered_by

    try:
        rendered = rendered_by(tokens, family, variables)
        return all(
            rendered.ids(messages, tools) == tokens.encode(template(messages, tools, variables))
            for messages, tools in _prints()
        )
    except (RenderingError, UsageError):
        return False


@lru_cache(1)
def _prints() -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    return [(messages, [_TOOL] if with_tools else []) for messages, with_tools in _PRINTS]
