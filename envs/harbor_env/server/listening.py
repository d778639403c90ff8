"""Ports and the servers on them: bound before anything starts, heard of once they listen."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from harbor_env.errors import UsageError
from harbor_env.gateway.half_open import HalfOpenProtocol

SETTINGS: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "backlog": 4096,
    "timeout_keep_alive": 120,  # longer than harnesses keep a connection between two calls
    "timeout_graceful_shutdown": 30,
}
"""Of every server here; times are in seconds."""


def bind(host: str, port: int) -> socket.socket:
    """A socket on that address, which does not listen yet. UsageError: the machine refuses it."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"This machine cannot listen on {host} port {port}: {reason}.") from error
    return bound


def url_of(bound: socket.socket) -> str:
    """The URL of the address a socket is bound to, without a trailing slash."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's; awaits `ready` once it listens, and stops where that raises."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        try:
            await self._ready()
        except BaseException:
            await self.shutdown(sockets)
            raise


class _Second(Server):
    """A server beside another one, which is told of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def beside(app: ASGIApp, bound: socket.socket) -> AsyncIterator[None]:
    """Serve `app`, which has no lifespan, on `bound` for as long as the block lasts."""
    listens = asyncio.Event()

    async def ready() -> None:
        listens.set()

    config = uvicorn.Config(app, http=HalfOpenProtocol, lifespan="off", ws="none", **SETTINGS)
    server = _Second(config, ready)
    serving = asyncio.create_task(server.serve([bound]))
    waiting = asyncio.create_task(listens.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield
    finally:
        server.should_exit = True
        await serving
