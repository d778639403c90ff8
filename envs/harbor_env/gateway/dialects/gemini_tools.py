"""Google's tool declarations, and the two spellings its JSON has for a field.

Invariant: schemas come out as plain JSON Schema, whichever of Google's two fields they were given in.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from harbor_env.gateway.dialects.fields import (
    Json,
    WrongField,
    an_object,
    each_at,
    name_at,
    object_at,
    read_at,
    text_at,
)
from harbor_env.gateway.dialects.unheeded import note, unread_fields, words
from harbor_env.gateway.types import Finding, Tool

MAX_DEPTH = 100
"""Levels of a schema that are read."""
_VALUES = frozenset({"enum", "default", "example", "const"})
"""Fields of a schema whose contents are values, not schemas."""


_KNOWN = words("name description parameters parametersJsonSchema parameters_json_schema behavior")


def key_of(obj: Json, camel: str) -> str:
    """The key a field is under: Google's JSON may spell `topP` as `top_p`."""
    if camel in obj:
        return camel
    other = snake(camel)
    return other if other in obj else camel


@cache
def snake(camel: str) -> str:
    """The other spelling of a field: `topP` is `top_p`."""
    return re.sub("([A-Z])", r"_\1", camel).lower()


def tools_of(value: Any, findings: list[Finding]) -> list[Tool]:
    """The functions of one entry of `tools`; Google's own tools are left out with a finding."""
    item = an_object(value)
    declared = key_of(item, "functionDeclarations")
    for kind in item:
        if kind != declared:
            findings.append(Finding("tool_dropped", f"{kind[:80]} is hosted by its vendor"))
    return each_at(item, declared, lambda value: _tool(value, findings))


def _tool(value: Any, findings: list[Finding]) -> Tool:
    item = an_object(value)
    note(findings, unread_fields(item, _KNOWN, "functionDeclarations[]."))
    plain = object_at(item, key_of(item, "parametersJsonSchema"))
    parameters = plain or read_at(item, "parameters", lower_schema)
    return Tool(name_at(item, "name"), text_at(item, "description"), parameters)


def lower_schema(value: Any) -> dict[str, Any]:
    """An OpenAPI-style schema as JSON Schema: `STRING` is `string`. Missing and null are empty."""
    return {} if value is None else _lower_object(an_object(value), MAX_DEPTH)


def _lower_object(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    if depth == 0:
        raise WrongField("is nested too deeply")
    lowered = schema.copy()
    for key, value in schema.items():
        if isinstance(value, str):
            if key == "type":
                lowered[key] = value.lower()
        elif isinstance(value, dict):
            if key not in _VALUES:
                lowered[key] = _lower_object(value, depth - 1)
        elif isinstance(value, list) and key not in _VALUES:
            lowered[key] = [_lower_object(v, depth - 1) if isinstance(v, dict) else v for v in value]
    return lowered
