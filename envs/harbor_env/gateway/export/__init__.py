"""A session as training data: one file per format; `FORMATS` closes the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harbor_env.errors import UsageError
from harbor_env.gateway.export import messages, rows, safetensors, sft, trace
from harbor_env.gateway.export.session_export import TRAINED_ROLES, SessionExport
from harbor_env.lookup import import_object

__all__ = ["FORMATS", "TRAINED_ROLES", "Format", "SessionExport", "find_format"]


@dataclass(frozen=True, slots=True)
class Format:
    """How a session is written: `encode` is pure and gives the whole body, of type `media_type`."""

    media_type: str
    encode: Callable[[SessionExport], bytes]


JSON_LINES = "application/x-ndjson"

FORMATS: dict[str, Format] = {
    "trace": Format("application/json", trace.encode),
    "rows": Format(JSON_LINES, rows.json_lines),
    "safetensors": Format("application/octet-stream", safetensors.encode),
    "messages": Format(JSON_LINES, messages.json_lines),
    "sft": Format(JSON_LINES, sft.json_lines),
}


def find_format(name: str) -> Format:
    """A format by its name here, or any `Format` as `module:Name`. UsageError: neither."""
    if name in FORMATS:
        return FORMATS[name]
    if ":" in name:
        try:
            found = import_object(name)
        except ImportError as error:
            raise UsageError(f"Export format {name} cannot be loaded: {error}") from error
        if isinstance(found, Format):
            return found
        raise UsageError(f"{name} is not a Format (media_type, encode).")
    raise UsageError(f"Unknown export format {name!r}. Use one of {', '.join(FORMATS)}, or module:Name.")
