"""OpenAI's `tool_choice`, as Chat Completions and Responses spell it.

Invariant: a choice that is not kept to is a finding.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from harbor_env.gateway.dialects.fields import (
    Json,
    an_object,
    each_at,
    name_at,
    object_at,
    read_at,
    text_at,
    unknown_type,
)
from harbor_env.gateway.dialects.unheeded import note_allowed
from harbor_env.gateway.types import Finding, ToolChoice

_WORDS = {word: ToolChoice(word) for word in ("auto", "none", "required")}


def openai_choice(choice: Any, findings: list[Finding], builtins: Container[str] = ()) -> ToolChoice:
    """A word, one tool by name, some tools, or a tool by its type; `builtins` are the types a harness runs itself."""
    if choice is None:
        return ToolChoice()
    if isinstance(choice, str) and choice in _WORDS:
        return _WORDS[choice]
    item = an_object(choice)
    kind = item.get("type")
    if not isinstance(kind, str):
        raise unknown_type(kind)
    if kind == "allowed_tools":
        return _allowed(object_at(item, kind) or item, findings)
    if kind in ("function", "custom"):
        return ToolChoice("named", _name(item, kind))
    if kind in builtins:
        return ToolChoice("named", kind)
    findings.append(Finding("tool_choice_ignored", f"{kind[:80]} is hosted by its vendor"))
    return ToolChoice()


def _allowed(allowed: Json, findings: list[Finding]) -> ToolChoice:
    note_allowed(findings, each_at(allowed, "tools", _allowed_name))
    return _WORDS["required" if text_at(allowed, "mode") == "required" else "auto"]


def _allowed_name(value: Any) -> str:
    item = an_object(value)
    kind = text_at(item, "type")
    return _name(item, kind) if "name" in item or kind in item else kind


def _name(item: Json, kind: str) -> str:
    """Chat Completions holds the name one level deeper, below the tool's type."""
    if kind in item:
        return read_at(item, kind, lambda tool: name_at(an_object(tool), "name"))
    return name_at(item, "name")
