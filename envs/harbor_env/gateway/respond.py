"""Answer one harness over ASGI: the whole body, or a stream kept alive while the engine works.

Invariant: the engine's work ends when the harness hangs up. A failure before the first byte has its real HTTP status;
after it, it is the dialect's error event, never a normal end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Send

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects import Dialect
from harbor_env.gateway.types import Call

log = logging.getLogger(__name__)

JSON = (b"content-type", b"application/json")
EVENTS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


@dataclass(frozen=True, slots=True)
class Connection:
    """The two ends of one HTTP exchange whose request body was read."""

    receive: Receive
    send: Send

    async def whole(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        head = [JSON, *headers, (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})

    async def begin_stream(self) -> None:
        await self.send({"type": "http.response.start", "status": 200, "headers": list(EVENTS)})

    async def chunk(self, data: bytes, *, last: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": not last})

    async def gone(self) -> None:
        """Returns when the harness has hung up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


async def respond(
    connection: Connection, dialect: Dialect, call: Call, work: Coroutine[Any, Any, bytes], keepalive: float
) -> str:
    """Run `work` and send the body or the events it gives. Returns `ok`, `gone`, or the kind of the error sent."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(connection.gone())
    try:
        began = await _wait(connection, dialect, task, gone, keepalive if call.stream else None)
        if not task.done():
            return "gone"
        return await _finish(connection, dialect, call, task, began)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def send_error(connection: Connection, dialect: Dialect, error: GatewayError) -> str:
    """Send an error as a whole response in the dialect's shape."""
    status, body = dialect.error(error)
    retry = () if error.retry_after is None else ((b"retry-after", f"{error.retry_after:g}".encode()),)
    await connection.whole(status, body, *retry)
    return error.kind


def as_gateway_error(error: BaseException) -> GatewayError:
    """A known error as it is; anything else is a bug of ours, logged with its traceback and shown without it."""
    if isinstance(error, GatewayError):
        return error
    log.error("call failed inside the gateway", exc_info=error)
    return GatewayError("internal", f"The gateway failed on this call ({type(error).__name__}); its log has the cause.")


async def _wait(
    connection: Connection,
    dialect: Dialect,
    task: asyncio.Future[bytes],
    gone: asyncio.Future[None],
    keepalive: float | None,
) -> bool:
    """Wait for the reply or the hang-up; returns whether a stream was begun to keep the connection alive."""
    began = False
    while True:
        waited: set[asyncio.Future[Any]] = {task, gone}
        done, _ = await asyncio.wait(waited, timeout=keepalive, return_when=asyncio.FIRST_COMPLETED)
        if done:
            return began
        if not began:
            await connection.begin_stream()
            began = True
        await connection.chunk(dialect.keepalive)


async def _finish(
    connection: Connection, dialect: Dialect, call: Call, task: asyncio.Future[bytes], began: bool
) -> str:
    failure = task.exception()
    if failure is not None:
        error = as_gateway_error(failure)
        if not began:
            return await send_error(connection, dialect, error)
        await connection.chunk(dialect.stream_error(error), last=True)
        return error.kind
    if not call.stream:
        await connection.whole(200, task.result())
        return "ok"
    if not began:
        await connection.begin_stream()
    await connection.chunk(task.result(), last=True)
    return "ok"
