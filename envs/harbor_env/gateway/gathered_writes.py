"""A transport that sends what was written in one pass of the event loop at once: a head and its body are one packet.

Invariant: bytes leave in the order they were written, and none is kept past the pass or past `close`.
"""

from __future__ import annotations

import asyncio
from typing import Any


class GatheredWrites(asyncio.Transport):
    """What uvicorn needs of a transport, over `transport`."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, data: Any) -> None:
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._waiting = []
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and not self._transport.is_closing():
            self._transport.write(b"".join(waiting))
