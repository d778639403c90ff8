"""Fakes that answer over HTTP, served on loopback for as long as a test needs them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

SCORED = {"id": "r", "task": "t", "harness": "h", "sandbox": "local", "ok": True, "reward": 1.0}


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
async def task_server(
    answer: Mapping[str, Any],
    status: int = 200,
    port: int = 0,
    actions: list[dict[str, Any]] | None = None,
    tasks: Sequence[tuple[str, str]] = (),
) -> AsyncIterator[str]:
    """A fake environment server that is asked how many tasks it has; every step scores and is kept in `actions`.

    `tasks` are name and instruction of each.
    """

    async def num_tasks(request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    async def task_range(request: web.Request) -> web.Response:
        split = (await request.json())["split"]
        told = [
            {"split": split, "index": index, "name": name, "instruction": instruction}
            for index, (name, instruction) in enumerate(tasks)
        ]
        return web.json_response({"tasks": told})

    async def episode(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            frame = json.loads(message.data)
            if frame["type"] == "step" and actions is not None:
                actions.append(frame["data"])
            told = {"result": SCORED} if frame["type"] == "step" else {"instruction": "Do it."}
            data = {"observation": told, "done": frame["type"] == "step"}
            await socket.send_str(json.dumps({"type": "observation", "data": data}))
        return socket

    app = web.Application()
    app.router.add_post("/harbor_env/num_tasks", num_tasks)
    app.router.add_post("/harbor_env/task_range", task_range)
    app.router.add_get("/ws", episode)
    async with serving(app, port) as url:
        yield url
