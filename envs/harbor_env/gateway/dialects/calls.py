"""Calls on their way to a harness: the argument text each dialect sends.

Invariant: what the model wrote is never re-serialised, so long numbers and spacing survive.
"""

from __future__ import annotations

from typing import Any

import orjson

from harbor_env.gateway.dialects.fields import json_text
from harbor_env.gateway.types import Call, ToolCall

SPACE = " \t\r\n"
"""What JSON calls white space."""
UNPARSED = "__unparsedToolInput"
"""How arguments that are no JSON object travel where a dialect has room for an object only: `{"raw", "len"}`."""


def function_arguments(made: ToolCall) -> str:
    """The text as sampled; a call without arguments carries an empty object, because clients parse it."""
    return made.arguments if made.arguments.strip(SPACE) else "{}"


def object_fragment(arguments: str) -> orjson.Fragment | dict[str, Any]:
    """Argument text as an object to embed in a body; text that is no object is wrapped as Claude Code wraps it.

    A valid object has no raw line break inside a string, so those between its tokens can go.
    """
    try:
        is_object = isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        is_object = False
    if not is_object:
        return {UNPARSED: {"raw": arguments, "len": len(arguments)}}
    return orjson.Fragment(arguments.replace("\n", " ").replace("\r", " "))


def object_arguments(given: Any) -> str:
    """The argument text of an object read from a body: what was wrapped comes out as it was written."""
    if given is None:
        return "{}"
    kept = given.get(UNPARSED) if isinstance(given, dict) and len(given) == 1 else None
    return kept["raw"] if isinstance(kept, dict) and isinstance(kept.get("raw"), str) else json_text(given)


def custom_names(call: Call) -> frozenset[str]:
    """The request's tools that take one free text."""
    return frozenset(tool.name for tool in call.tools if tool.kind == "custom")
