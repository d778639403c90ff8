"""Server-sent events as bytes (HTML Standard, section 9.2).

Invariant: one event is one `data:` line, also for readers that split lines where Unicode does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

COMMENT = b": keep-alive\n\n"
"""A comment: every conforming reader skips it."""
DONE = b"data: [DONE]\n\n"


LINE_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""Characters JSON leaves raw and Python's `splitlines` breaks at, and their escapes."""


def data(payload: Any) -> bytes:
    """An event without a name."""
    return b"data: %b\n\n" % _line(payload)


def event(payload: dict[str, Any]) -> bytes:
    """An event named by its own `type`."""
    return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), _line(payload))


def _line(payload: Any) -> bytes:
    line = orjson.dumps(payload)
    if not line.isascii():
        for raw, escaped in LINE_BREAKS:
            line = line.replace(raw, escaped)
    return line


def cut(text: str, piece: int) -> Iterator[str]:
    """`text` in pieces of at most `piece` characters, whole for 0; nothing for an empty text."""
    if piece <= 0 or len(text) <= piece:
        if text:
            yield text
        return
    for start in range(0, len(text), piece):
        yield text[start : start + piece]
