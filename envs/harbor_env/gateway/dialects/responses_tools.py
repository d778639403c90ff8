"""The tools of a Responses request: functions, free text, namespaces, and those the API defines but a harness runs.

Invariant: every tool a model is shown has a name of its own; `wire_name` gives back what the harness called it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from harbor_env.gateway.dialects.chat import custom_tool
from harbor_env.gateway.dialects.fields import (
    Json,
    an_object,
    each_at,
    flag_at,
    json_text,
    name_at,
    object_at,
    text_at,
    unknown_type,
)
from harbor_env.gateway.dialects.unheeded import note, unread_fields, words
from harbor_env.gateway.types import Finding, Tool


@dataclass(frozen=True, slots=True)
class Builtin:
    """A tool the API defines: the item types of its call and output, the field of its arguments, and a schema."""

    call: str
    output: str
    field: str
    parameters: Json
    description: str


def _schema(required: str, **properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": [required]}


_WORDS = {"type": "array", "items": {"type": "string"}}
_OPERATION = {
    "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
    "path": {"type": "string"},
    "diff": {"type": "string"},
}
BUILTINS = {
    "local_shell": Builtin(
        "local_shell_call",
        "local_shell_call_output",
        "action",
        _schema("command", command=_WORDS, working_directory={"type": "string"}, timeout_ms={"type": "integer"}),
        "Runs one command, given as a list of arguments.",
    ),
    "shell": Builtin(
        "shell_call",
        "shell_call_output",
        "action",
        _schema("commands", commands=_WORDS, timeout_ms={"type": "integer"}, max_output_length={"type": "integer"}),
        "Runs shell commands, each given as one string.",
    ),
    "apply_patch": Builtin(
        "apply_patch_call",
        "apply_patch_call_output",
        "operation",
        {"type": "object", "properties": _OPERATION, "required": ["type", "path"]},
        "Creates, updates or deletes one file; `diff` is a unified diff.",
    ),
    "tool_search": Builtin(
        "tool_search_call",
        "tool_search_output",
        "arguments",
        {"type": "object", "properties": {"query": {"type": "string"}}},
        "Finds further tools.",
    ),
}


_KNOWN = words("type name description parameters format defer_loading cache_control")


class ToolBox:
    """Collects tools as they are met; `deferred` are those loaded later, or marked so."""

    def __init__(self, findings: list[Finding]) -> None:
        self._findings = findings
        self._tools: list[Tool] = []
        self._deferred: list[Tool] = []

    def offer(self, value: Any) -> None:
        """Add one entry of a tools list."""
        for tool, deferred in self._read(value, ""):
            (self._deferred if deferred else self._tools).append(tool)

    def load(self, obj: Json) -> str:
        """Add the `tools` of an item met in mid-conversation; returns what tells a model of them."""
        loaded = [tool for found in each_at(obj, "tools", lambda value: self._read(value, "")) for tool, _ in found]
        self._deferred += loaded
        return "\n".join(_described(tool) for tool in loaded)

    def shown_name(self, name: str, namespace: str) -> str:
        """What a model calls the tool a harness calls `name`: the same, unless another tool has that name too."""
        return f"{namespace}__{name}" if namespace and self._count(name) > 1 else name

    def close(self) -> tuple[tuple[Tool, ...], tuple[Tool, ...]]:
        """The tools and the deferred ones, under the names a model is shown."""
        return self._shown(self._tools), self._shown(self._deferred)

    def _count(self, name: str) -> int:
        return sum(tool.name == name for tool in (*self._tools, *self._deferred))

    def _shown(self, tools: list[Tool]) -> tuple[Tool, ...]:
        return tuple(
            replace(tool, name=self.shown_name(tool.name, tool.namespace)) if tool.namespace else tool for tool in tools
        )

    def _read(self, value: Any, namespace: str) -> list[tuple[Tool, bool]]:
        item = an_object(value)
        kind = item.get("type")
        if kind in ("function", "custom"):
            note(self._findings, unread_fields(item, _KNOWN, "tools[]."))
        if kind == "function":
            tool = Tool(
                name_at(item, "name"), text_at(item, "description"), object_at(item, "parameters"), namespace=namespace
            )
            return [(tool, flag_at(item, "defer_loading"))]
        if kind == "custom":
            tool = replace(custom_tool(item, object_at(item, "format")), namespace=namespace)
            return [(tool, flag_at(item, "defer_loading"))]
        if kind == "namespace" and not namespace:
            return self._namespace(item)
        if not isinstance(kind, str):
            raise unknown_type(kind)
        if kind in BUILTINS and not (kind == "tool_search" and item.get("execution") != "client"):
            return [(_builtin(kind, item), False)]
        self._findings.append(Finding("tool_dropped", f"{kind[:80]} is hosted by its vendor"))
        return []

    def _namespace(self, item: Json) -> list[tuple[Tool, bool]]:
        name, about = name_at(item, "name"), text_at(item, "description")
        found = [pair for pairs in each_at(item, "tools", lambda value: self._read(value, name)) for pair in pairs]
        if not about:
            return found
        return [(replace(tool, description=f"{tool.description}\n\n{name}: {about}"), late) for tool, late in found]


def _builtin(kind: str, item: Json) -> Tool:
    known = BUILTINS[kind]
    given = item.get("parameters")
    parameters = given if isinstance(given, dict) else known.parameters
    return Tool(kind, text_at(item, "description") or known.description, parameters, "builtin")


def _described(tool: Tool) -> str:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return f"Tool loaded: {json_text({'type': tool.kind, 'function': function})}"


def wire_name(tool: Tool) -> str:
    """What the harness called the tool inside its namespace."""
    return tool.name.removeprefix(f"{tool.namespace}__") if tool.namespace else tool.name
