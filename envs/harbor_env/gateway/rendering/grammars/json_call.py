"""One call as a JSON object, `{"name": ..., "arguments": ...}`, read as far as it goes.

Invariant: the arguments keep their own text; it is written anew only where strict JSON would refuse it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from harbor_env.gateway.rendering.grammars.reading import dump_json
from harbor_env.gateway.rendering.guard import clear

_SPACE = re.compile(r"\s*")


def refuse(constant: str) -> None:
    """Not-a-number and the infinities, which Python's reader would take."""
    raise ValueError(f"{constant} is no JSON")


_LENIENT = json.JSONDecoder(strict=False, parse_constant=refuse)
_STRICT = json.JSONDecoder(parse_constant=refuse)


@dataclass(slots=True)
class ScannedCall:
    """`end` is 0 where the arguments are not whole; `complete`: the object is closed; `rewritten`: not as sampled.

    `open_quote`: reading stopped right after a string, whose closing quote should have been escaped.
    """

    name: str = ""
    arguments: str = "{}"
    arguments_start: int = 0
    end: int = 0
    complete: bool = False
    rewritten: bool = False
    open_quote: bool = False


def scan_call(text: str, start: int) -> ScannedCall:
    """The call that begins at `start`, keys in any order. Never raises."""
    scanned = ScannedCall()
    position = _skip(text, start)
    if not text.startswith("{", position):
        return scanned
    position = _skip(text, position + 1)
    while text.startswith('"', position):
        try:
            key, position = _LENIENT.raw_decode(text, position)
            position = _skip(text, position)
            if not text.startswith(":", position):
                return scanned
            position = _member(text, key, _skip(text, position + 1), scanned)
        except (ValueError, RecursionError) as error:
            scanned.open_quote = _inner_quote(text, error)
            return scanned
        position = _skip(text, position)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
    if text.startswith("}", position):
        scanned.end = position + 1
        scanned.complete = True
    else:
        scanned.open_quote = text[:position].rstrip().endswith('"')
        scanned.end = position if scanned.arguments_start and not scanned.open_quote else 0
    return scanned


def _member(text: str, key: str, position: int, scanned: ScannedCall) -> int:
    """Take one member's value into `scanned`; where the value ends."""
    holds_arguments = key in ("arguments", "parameters")
    if holds_arguments:
        scanned.arguments_start = position
    value, end = _LENIENT.raw_decode(text, position)
    if key == "name" and isinstance(value, str):
        scanned.name = value
    elif holds_arguments:
        scanned.arguments = value if isinstance(value, str) else text[position:end]
        if not isinstance(value, str) and not _strict(scanned.arguments):
            scanned.arguments = dump_json(value)
            scanned.rewritten = True
    return end


def _strict(text: str) -> bool:
    try:
        _STRICT.decode(clear(text))
    except (ValueError, RecursionError):
        return False
    return True


def _inner_quote(text: str, error: Exception) -> bool:
    if not isinstance(error, json.JSONDecodeError):
        return False
    return "delimiter" in error.msg and text[: error.pos].rstrip().endswith('"')


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position
