"""A fake of a bad network between a harness and the gateway: a proxy that breaks connections at chosen model calls.

Everything else passes through as it is, the gateway's control routes too. `UNSEEN` breaks a connection when the whole
answer has come and nothing of it was passed on, `HALF` when half of it was. The first call that takes longer than
`patience` seconds is broken on both sides, as if the harness had hung up while it waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import aiohttp
from aiohttp import web

from tests.fake_server import serving

Break = Literal["unseen", "half"]
OF_ONE_CONNECTION = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}


@dataclass
class BadWire:
    """`breaks` says what becomes of the n-th model call, counted from 1. `broken` is what was done, in order."""

    upstream: str
    breaks: Mapping[int, Break]
    patience: float
    url: str = ""
    broken: list[str] = field(default_factory=list)
    _calls: int = 0

    async def pass_on(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        call = request.method == "POST" and request.path not in ("/sessions", "/v1/messages/count_tokens")
        self._calls += call
        how = self.breaks.get(self._calls, "") if call else ""
        waits = call and "waiting" not in self.broken
        response = web.StreamResponse()
        try:
            async with asyncio.timeout(self.patience if waits else None):
                await self._exchange(request, response, session, how)
        except TimeoutError:
            how = "waiting"
        if how:
            self.broken.append(how)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _exchange(
        self, request: web.Request, response: web.StreamResponse, session: aiohttp.ClientSession, how: str
    ) -> None:
        url, body = self.upstream + request.path_qs, await request.read()
        async with session.request(request.method, url, headers=_passing(request.headers), data=body) as answer:
            response.set_status(answer.status)
            response.headers.update(_passing(answer.headers))
            response.content_length = answer.content_length
            if how == "unseen":
                await answer.read()
                return
            await response.prepare(request)
            if how == "half":
                whole = await answer.read()
                await response.write(whole[: len(whole) // 2])
                return
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()


def _passing(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in OF_ONE_CONNECTION}


@asynccontextmanager
async def bad_wire(upstream: str, breaks: Mapping[int, Break], patience: float) -> AsyncIterator[BadWire]:
    """A proxy in front of `upstream` on a free port of this machine, for as long as the block lasts."""
    wire = BadWire(upstream, breaks, patience)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            return await wire.pass_on(request, session)

        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", handle)
        async with serving(app) as wire.url:
            yield wire
