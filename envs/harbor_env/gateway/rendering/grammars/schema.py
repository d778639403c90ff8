"""Values written as plain text, typed by a tool's JSON schema.

Invariant: a value that does not fit its declared type is kept as the text it is.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from harbor_env.gateway.rendering.grammars.json_call import refuse
from harbor_env.gateway.types import Tool

MAX_REFERENCES = 4
"""References inside references that are followed."""
_UNIONS = ("anyOf", "oneOf", "allOf")
_NULLS = ("null", "None")
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_JSON_TYPES: dict[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
}


def parameter_schemas(tools: Sequence[Tool], name: str) -> Mapping[str, Any]:
    """Parameter name to schema for one tool; empty where the tool is not offered."""
    for tool in tools:
        properties = tool.parameters.get("properties") if tool.name == name else None
        if isinstance(properties, Mapping):
            return {key: _inlined(schema, tool.parameters, MAX_REFERENCES) for key, schema in properties.items()}
    return {}


def _inlined(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """The schema with what its own references, and those of its unions, stand for."""
    if not isinstance(schema, Mapping) or depth == 0:
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = _referenced(reference, root)
        return _inlined({**target, **{k: v for k, v in schema.items() if k != "$ref"}}, root, depth - 1)
    unions = {key: schema[key] for key in _UNIONS if isinstance(schema.get(key), list)}
    return {**schema, **{key: [_inlined(b, root, depth) for b in branches] for key, branches in unions.items()}}


def _referenced(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a JSON pointer into the same document points at; empty where it is no schema."""
    place: Any = root
    for step in reference.removeprefix("#/").split("/"):
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
    return place if isinstance(place, Mapping) else {}


def typed(text: str, schema: Any) -> Any:
    """The value of one parameter written as bare text."""
    types = declared_types(schema)
    if types == {"string"}:
        return text
    plain = text.strip()
    if plain in _NULLS and (not types or "null" in types):
        return None
    if types and types <= {"boolean", "null"}:
        return _BOOLEANS.get(plain.lower(), text)
    value = _literal(plain)
    if value is None:
        return text
    if not types or any(_fits(value, kind) for kind in types if kind != "string"):
        return value
    return text


def declared_types(schema: Any) -> set[str]:
    """Every type a schema allows, through unions and enumerations; empty where it says nothing."""
    if not isinstance(schema, Mapping):
        return set()
    declared = schema.get("type")
    types = {declared} if isinstance(declared, str) else set(declared) if isinstance(declared, list) else set()
    for union in _UNIONS:
        branches = schema.get(union)
        for branch in branches if isinstance(branches, list) else ():
            types |= declared_types(branch)
    if types and schema.get("nullable") is True:
        types.add("null")
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not types and isinstance(values, list):
        types = {kind for value in values for kind in _kinds(value)}
    return {kind for kind in types if isinstance(kind, str)}


def _kinds(value: Any) -> frozenset[str]:
    return frozenset({"null"}) if value is None else _JSON_TYPES.get(type(value), frozenset())


def _fits(value: Any, kind: str) -> bool:
    return kind in _kinds(value) or (kind == "integer" and isinstance(value, float) and value.is_integer())


def _literal(text: str) -> Any:
    """A JSON value, or the Python spelling of one; None where the text is neither."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        value = json.loads(text, strict=False, parse_constant=refuse)
        json.dumps(value, allow_nan=False)
        return value
    except (ValueError, RecursionError):
        pass
    if text[:1] not in ("{", "["):
        return None
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value
