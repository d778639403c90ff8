"""Typed reading of parsed JSON: every wrong type is a `bad_request` that names the field's path.

Invariant: no function here raises anything but `WrongField`, whatever JSON it is given. The path is put together on
the way out, so that reading a right body costs nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import orjson

from harbor_env.errors import GatewayError
from harbor_env.gateway.types import Finding

Json = Mapping[str, Any]
T = TypeVar("T")

MEDIA = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "computer_screenshot": "image",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "document",
}
"""Content types that are not text, and what to call them."""
TEXT = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_KINDS = {
    type(None): "null",
    bool: "a boolean",
    str: "a string",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class WrongField(GatewayError):
    """A field that is not what it must be; each reader on the way out adds its step to the path."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__("bad_request", "")
        self._problem, self._path = problem, path
        self.within("")

    def within(self, step: str) -> None:
        """The wrong field lies below `step`: a key, or an index in brackets."""
        dot = "." if step and self._path and not self._path.startswith("[") else ""
        self._path = f"{step}{dot}{self._path}"
        self.message = f"{self._path}: {self._problem}." if self._path else f"{self._problem}."
        self.args = (self.message,)


def _expected(wanted: str, value: object, path: str = "") -> WrongField:
    return WrongField(f"expected {wanted}, got {_KINDS.get(type(value), type(value).__name__)}", path)


def unknown_type(kind: object) -> WrongField:
    """The `type` of an object is none that is known here, or no string at all."""
    if not isinstance(kind, str):
        return _expected("a string", kind, "type")
    return WrongField(f"unknown type {kind[:80]!r}", "type")


def an_object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise _expected("an object", value)


def a_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _expected("a string", value)


def each(values: Any, read: Callable[[Any], T]) -> list[T]:
    """Every item of a list, read; null is an empty list."""
    if values is None:
        return []
    if not isinstance(values, list):
        raise _expected("a list", values)
    done: list[T] = []
    try:
        for value in values:
            done.append(read(value))
    except WrongField as error:
        error.within(f"[{len(done)}]")
        raise
    return done


def read_at(obj: Json, key: str, read: Callable[[Any], T]) -> T:
    """The value at `key`, None where missing, read."""
    try:
        return read(obj.get(key))
    except WrongField as error:
        error.within(key)
        raise


def each_at(obj: Json, key: str, read: Callable[[Any], T]) -> list[T]:
    """Every item of the list at `key`, read; missing and null are empty."""
    try:
        return each(obj.get(key), read)
    except WrongField as error:
        error.within(key)
        raise


def text_at(obj: Json, key: str) -> str:
    """An optional string; missing and null are ""."""
    value = obj.get(key)
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise _expected("a string", value, key)


def name_at(obj: Json, key: str) -> str:
    """A string that must be there and not be empty."""
    value = obj.get(key)
    if isinstance(value, str) and value:
        return value
    raise WrongField("is empty", key) if value == "" else _expected("a non-empty string", value, key)


def string_at(obj: Json, key: str) -> str:
    """A string that must be there: the name in a call, which a model may have left empty."""
    value = obj.get(key)
    if isinstance(value, str):
        return value
    raise _expected("a string", value, key)


def object_at(obj: Json, *keys: str) -> dict[str, Any]:
    """An optional object, reached through optional objects; missing and null are empty."""
    found: Any = obj
    for depth, key in enumerate(keys, 1):
        value = found.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise _expected("an object", value, ".".join(keys[:depth]))
        found = value
    return found  # type: ignore[no-any-return]


def flag_at(obj: Json, key: str) -> bool:
    """An optional boolean; missing and null are False."""
    value = obj.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _expected("a boolean", value, key)


def integer_at(obj: Json, key: str, least: int | None = None) -> int | None:
    """An optional integer of at least `least`; missing and null are None."""
    value = obj.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _expected("an integer", value, key)
    if least is not None and value < least:
        raise WrongField(f"must be at least {least}, got {value}", key)
    return value


def number_at(obj: Json, key: str) -> float | None:
    """An optional number that is not negative; missing and null are None."""
    value = obj.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _expected("a number", value, key)
    if value < 0:
        raise WrongField(f"must not be negative, got {value}", key)
    return float(value)


def texts_at(obj: Json, key: str) -> tuple[str, ...]:
    """An optional string or list of strings."""
    value = obj.get(key)
    return (value,) if isinstance(value, str) else tuple(each_at(obj, key, a_text))


def json_text(value: Any) -> str:
    """Compact JSON, the form arguments take where a dialect carries them parsed."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:
        raise WrongField("is nested too deeply") from error


def content_at(obj: Json, key: str, separator: str, findings: list[Finding] | None = None) -> str:
    """Content as one text: null, a string, or a list of parts joined with `separator`. Empty parts vanish.

    Media is refused; or, where `findings` is given, replaced by a visible placeholder and noted there.
    """
    content = obj.get(key)
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise _expected("a string or a list of parts", content, key)
    return separator.join(filter(None, each_at(obj, key, lambda part: part_text(part, findings))))


def part_text(part: Any, findings: list[Finding] | None = None) -> str:
    """One content part as text; see `content_at` for media."""
    if isinstance(part, str):
        return part
    kind = an_object(part).get("type")
    if isinstance(kind, str) and kind in TEXT:
        return text_at(part, "text")
    if kind == "refusal":
        return text_at(part, "refusal")
    if isinstance(kind, str) and kind in MEDIA:
        return no_media(MEDIA[kind], findings)
    raise unknown_type(kind)


def no_media(what: str, findings: list[Finding] | None) -> str:
    """The placeholder for media that came with a tool's result, which a harness cannot avoid; refused elsewhere."""
    if findings is None:
        raise WrongField(f"this model reads text only, {what} content is not supported")
    findings.append(Finding("media_omitted", what))
    return f"[{what} omitted: this model reads text only]"
