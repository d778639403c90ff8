"""JSON documents as text that is short on the wire and cheap to carry through JSON: zstandard in base64. Pure."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import zstandard

UNPACKED_LIMIT = 512 * 2**20
"""Bytes of JSON a packed document may unpack to."""


def pack(document: bytes) -> str:
    """The packed text of JSON bytes."""
    return base64.b64encode(zstandard.ZstdCompressor(level=3).compress(document)).decode()


def unpack(packed: str) -> dict[str, Any]:
    """The JSON object `pack` was given. ValueError: it is none, or larger than `UNPACKED_LIMIT`."""
    try:
        raw = zstandard.ZstdDecompressor().decompress(base64.b64decode(packed), max_output_size=UNPACKED_LIMIT)
    except zstandard.ZstdError as error:
        raise ValueError(f"not a packed document: {error}") from error
    document = orjson.loads(raw)
    if not isinstance(document, dict):
        raise ValueError("not a packed JSON object")
    return document
