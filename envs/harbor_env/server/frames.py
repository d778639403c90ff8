"""Messages between the server and a worker process, over a socket pair: a length, then a pickle.

Both ends are processes of ours on one machine, so pickle is safe here; nothing a client sent is unpickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
from typing import Any

_LENGTH = 8
BUFFER = 64 * 2**20


class Frames:
    """One end. `read` raises EOFError once the other end is gone; after one that was cancelled the next goes on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._length: int | None = None

    @classmethod
    async def over(cls, end: socket.socket) -> Frames:
        return cls(*await asyncio.open_unix_connection(sock=end, limit=BUFFER))

    @property
    def gone(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    async def read(self) -> Any:
        try:
            if self._length is None:
                self._length = int.from_bytes(await self._reader.readexactly(_LENGTH))
            body = await self._reader.readexactly(self._length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EOFError("the other end is gone") from error
        self._length = None
        return pickle.loads(body)

    def write(self, message: Any) -> None:
        """Queue a message; one for an end that is gone is dropped."""
        body = pickle.dumps(message)
        self._writer.write(len(body).to_bytes(_LENGTH) + body)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):  # the other end went first
            await self._writer.wait_closed()
