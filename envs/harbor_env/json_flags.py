"""Flags whose value is JSON."""

from __future__ import annotations

from typing import Any

import orjson

from harbor_env.errors import UsageError


def json_object(flag: str, text: str) -> dict[str, Any]:
    """The object in `text`, {} for "". UsageError: it is none."""
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{flag} is no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{flag} is a JSON object, for example '{{\"enable_thinking\": false}}'; not {text}.")
    return found
