"""Typed reading of parsed JSON: every wrong type is a `bad_request` that names the field's path.

Invariant: no function here raises anything but `GatewayError`, whatever JSON it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from harbor_env.errors import GatewayError
from harbor_env.gateway.types import Finding

Json = Mapping[str, Any]

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


def wrong(path: str, problem: str) -> GatewayError:
    return GatewayError("bad_request", f"{path}: {problem}.")


def kind_of(value: object) -> str:
    """What a JSON value is, in a client's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a string", int: "an integer", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _expected(path: str, wanted: str, value: object) -> GatewayError:
    return wrong(path, f"expected {wanted}, got {kind_of(value)}")


def an_object(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise _expected(path, "an object", value)


def a_list(value: Any, path: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise _expected(path, "a list", value)


def a_text(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    raise _expected(path, "a string", value)


def text_at(obj: Json, key: str, path: str) -> str:
    """An optional string; missing and null are ""."""
    value = obj.get(key)
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise _expected(_at(path, key), "a string", value)


def name_at(obj: Json, key: str, path: str) -> str:
    """A string that must be there and not be empty."""
    value = obj.get(key)
    if isinstance(value, str) and value:
        return value
    raise _expected(_at(path, key), "a non-empty string", value) if value != "" else wrong(_at(path, key), "is empty")


def list_at(obj: Json, key: str, path: str) -> list[Any]:
    """An optional list; missing and null are empty."""
    value = obj.get(key)
    return [] if value is None else a_list(value, _at(path, key))


def object_at(obj: Json, key: str, path: str) -> dict[str, Any]:
    """An optional object; missing and null are empty."""
    value = obj.get(key)
    return {} if value is None else an_object(value, _at(path, key))


def flag_at(obj: Json, key: str, path: str) -> bool:
    """An optional boolean; missing and null are False."""
    value = obj.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _expected(_at(path, key), "a boolean", value)


def integer_at(obj: Json, key: str, path: str, least: int | None = None) -> int | None:
    """An optional integer of at least `least`; missing and null are None."""
    value = obj.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _expected(_at(path, key), "an integer", value)
    if least is not None and value < least:
        raise wrong(_at(path, key), f"must be at least {least}, got {value}")
    return value


def number_at(obj: Json, key: str, path: str) -> float | None:
    """An optional number that is not negative; missing and null are None."""
    value = obj.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _expected(_at(path, key), "a number", value)
    if value < 0:
        raise wrong(_at(path, key), f"must not be negative, got {value}")
    return float(value)


def texts_at(obj: Json, key: str, path: str) -> tuple[str, ...]:
    """An optional string or list of strings."""
    value = obj.get(key)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    where = _at(path, key)
    return tuple(a_text(item, f"{where}[{i}]") for i, item in enumerate(a_list(value, where)))


def json_text(value: Any, path: str) -> str:
    """Compact JSON, the form arguments take where a dialect carries them parsed."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:
        raise wrong(path, "is nested too deeply") from error


def parts_text(content: Any, path: str, separator: str, findings: list[Finding] | None = None) -> str:
    """Content as one text: null, a string, or a list of parts joined with `separator`. Empty parts vanish.

    Media is refused; or, where `findings` is given, replaced by a visible placeholder and noted there.
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise _expected(path, "a string or a list of parts", content)
    texts = [part_text(part, f"{path}[{i}]", findings) for i, part in enumerate(content)]
    return separator.join(text for text in texts if text)


def part_text(part: Any, path: str, findings: list[Finding] | None = None) -> str:
    """One content part as text; see `parts_text` for media."""
    if isinstance(part, str):
        return part
    kind = an_object(part, path).get("type")
    if isinstance(kind, str) and kind in TEXT:
        return text_at(part, "text", path)
    if kind == "refusal":
        return text_at(part, "refusal", path)
    if isinstance(kind, str) and kind in MEDIA:
        return no_media(MEDIA[kind], path, findings)
    raise unknown_type(path, kind)


def no_media(what: str, path: str, findings: list[Finding] | None) -> str:
    """The placeholder for media inside a tool result, which a harness cannot avoid; refused elsewhere."""
    if findings is None:
        raise wrong(path, f"this model reads text only, {what} content is not supported")
    findings.append(Finding("media_omitted", f"{path}: {what}"))
    return f"[{what} omitted: this model reads text only]"


def unknown_type(path: str, kind: object) -> GatewayError:
    if not isinstance(kind, str):
        return _expected(_at(path, "type"), "a string", kind)
    return wrong(_at(path, "type"), f"unknown type {kind[:80]!r}")
