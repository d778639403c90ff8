"""Calls on their way to a harness: the argument text each dialect sends.

Invariant: what the model wrote is never re-serialised, so long numbers and spacing survive.
"""

from __future__ import annotations

import orjson

from harbor_env.gateway.types import Call, ToolCall

SPACE = " \t\r\n"
"""What JSON calls white space."""


def function_arguments(made: ToolCall) -> str:
    """The text as sampled; a call without arguments carries an empty object, because clients parse it."""
    return made.arguments if made.arguments.strip(SPACE) else "{}"


def object_fragment(arguments: str) -> orjson.Fragment | None:
    """Argument text to be embedded in a body as it stands, None where it is not a JSON object."""
    try:
        return orjson.Fragment(arguments) if isinstance(orjson.loads(arguments), dict) else None
    except orjson.JSONDecodeError:
        return None


def custom_names(call: Call) -> frozenset[str]:
    """The request's tools that take one free text."""
    return frozenset(tool.name for tool in call.tools if tool.kind == "custom")
