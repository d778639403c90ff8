"""Fakes that answer over HTTP, served on loopback for as long as a test needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


@asynccontextmanager
async def serving(app: web.Application, port: int = 0) -> AsyncIterator[str]:
    """The URL at which `app` answers: at a free port unless one is given."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def task_server(answer: Mapping[str, Any], status: int = 200, port: int = 0) -> AsyncIterator[str]:
    """A fake environment server that is asked how many tasks it has."""

    async def num_tasks(request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_post("/harbor_env/num_tasks", num_tasks)
    async with serving(app, port) as url:
        yield url
