"""A proxy that only passes bytes on: the least any Python gateway costs.

python -m bench.passthrough PORT ENGINE_URL
"""

from __future__ import annotations

import sys

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def app(engine: str) -> Starlette:
    clients: list[aiohttp.ClientSession] = []

    async def passed_on(request: Request) -> Response:
        if not clients:
            clients.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        url, headers = engine + request.url.path, {"content-type": "application/json"}
        async with clients[0].request(request.method, url, data=await request.body(), headers=headers) as answer:
            return Response(await answer.read(), answer.status, media_type=answer.content_type)

    return Starlette(routes=[Route("/{path:path}", passed_on, methods=["GET", "POST"])])


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", backlog=4096)
