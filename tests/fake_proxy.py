"""A fake of what stands between a client and a server: it cuts connections on which nothing comes back for too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class FakeProxy:
    """Passes TCP on to `target`, a URL. A connection on which the server is silent for `idle` seconds is closed.

    After `cut` it may be started again, at the same `url`.
    """

    def __init__(self, target: str, idle: float | None = None) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._idle = idle
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.cuts = 0
        self.url = ""

    async def start(self) -> None:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", urlsplit(self.url).port or 0)
        self.url = f"http://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"

    async def cut(self) -> None:
        """Close every connection and take no more, like a machine that dies."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._open):
            connection.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._connect(reader, writer))
        self._open.add(connection)
        connection.add_done_callback(self._open.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            from_server, to_server = await asyncio.open_connection(self._host, self._port)
            ends.append(to_server)
            ways = [
                asyncio.ensure_future(_pass(reader, to_server, None)),
                asyncio.ensure_future(_pass(from_server, writer, self._idle)),
            ]
            try:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                self.cuts += any(isinstance(way.exception(), TimeoutError) for way in done)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            for end in ends:
                end.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle: float | None) -> None:
    """Until the reader's end closes. TimeoutError: nothing came for `idle` seconds."""
    while True:
        async with asyncio.timeout(idle):
            data = await reader.read(65536)
        if not data:
            return
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def proxying(target: str, idle: float | None = None) -> AsyncIterator[FakeProxy]:
    proxy = FakeProxy(target, idle)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.cut()
