"""What openenv's endpoints leave out while a step runs, as a layer around them.

While one of its steps runs, a connection still answers `state`, sends heartbeats to a client that asked for them, and
cancels the step when the client goes away. A connection on which nothing happens is closed, and its slot is free.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol
from urllib.parse import parse_qs

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUIET = 15.0
"""Seconds between looks at a running step where the client asked for no heartbeats."""
SLOWEST, FASTEST = 120.0, 0.05


class Episode(Protocol):
    """What a connection needs of an environment: its state, brought up to date, and a way to end its step."""

    async def refresh(self) -> dict[str, Any]: ...
    def cancel(self) -> None: ...


class Connection:
    """One WebSocket or request, and the step that runs on it, if any."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, idle: float) -> None:
        self._receive = receive
        self._send = send
        self._socket = scope["type"] == "websocket"
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("heartbeat", ["0"])[0]
        self._heartbeat = _seconds(asked) if self._socket else 0.0
        self._idle = idle if self._socket else None
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._episode: Episode | None = None
        self._gone = False
        self.touch: Callable[[], object] = _nothing
        """Called while a step runs, so that openenv's own reaper knows of it."""

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        pump = asyncio.create_task(self._pump())
        try:
            await app(scope, self.receive, self.send)
        finally:
            pump.cancel()
            await asyncio.wait({pump})

    async def receive(self) -> Message:
        try:
            async with asyncio.timeout(self._idle):
                return await self._inbox.get()
        except TimeoutError:
            await self.send({"type": "websocket.close", "code": 1001, "reason": "idle for too long"})
            self._gone = True
            return {"type": "websocket.disconnect", "code": 1001}

    async def send(self, message: Message) -> None:
        """Send, unless nobody is there to receive."""
        if not self._gone:
            with contextlib.suppress(OSError):
                await self._send(message)

    @contextmanager
    def stepping(self, episode: Episode) -> Iterator[None]:
        """For as long as a step of `episode` runs."""
        self._episode = episode
        beats = asyncio.create_task(self._beat(episode))
        if self._gone:
            episode.cancel()
        try:
            yield
        finally:
            self._episode = None
            beats.cancel()

    async def _pump(self) -> None:
        """Read ahead of the endpoint, which does not read while it steps."""
        while True:
            message = await self._receive()
            if message["type"] in ("websocket.disconnect", "http.disconnect"):
                self._gone = True
                if self._episode is not None:
                    self._episode.cancel()
                self._inbox.put_nowait(message)
                return
            kind = _kind(message) if self._episode is not None else ""
            if kind == "state" and self._episode is not None:
                await self._tell("state", self._episode)
                continue
            if kind == "close" and self._episode is not None:
                self._episode.cancel()
            self._inbox.put_nowait(message)

    async def _beat(self, episode: Episode) -> None:
        while True:
            await asyncio.sleep(self._heartbeat or QUIET)
            self.touch()
            if self._heartbeat:
                await self._tell("heartbeat", episode)

    async def _tell(self, kind: str, episode: Episode) -> None:
        frame = orjson.dumps({"type": kind, "data": await episode.refresh()})
        await self.send({"type": "websocket.send", "text": frame.decode()})


CURRENT: ContextVar[Connection | None] = ContextVar("connection", default=None)
"""The connection the running code serves."""


class Connections:
    """ASGI middleware around openenv's `/ws` and `/step`. `idle` is in seconds."""

    def __init__(self, app: ASGIApp, idle: float) -> None:
        self._app = app
        self._idle = idle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("websocket", "http") and scope["path"] in ("/ws", "/mcp", "/step"):
            connection = Connection(scope, receive, send, self._idle)
            CURRENT.set(connection)
            await connection.run(self._app, scope)
        else:
            await self._app(scope, receive, send)


def _nothing() -> None:
    return None


def _kind(message: Message) -> str:
    try:
        document = orjson.loads(message.get("text") or b"")
    except orjson.JSONDecodeError:
        return ""
    return str(document.get("type", "")) if isinstance(document, dict) else ""


def _seconds(text: str) -> float:
    try:
        asked = float(text)
    except ValueError:
        return 0.0
    return min(max(asked, FASTEST), SLOWEST) if asked > 0 else 0.0
