"""Notes the requests of harnesses on their way to a gateway, with the turns they became.

    openenv-harbor gateway ... --port 8200 --public-url http://127.0.0.1:8201 &
    python -m bench.tap 8201 http://127.0.0.1:8200 requests.jsonl &
    openenv-harbor rollout --gateway http://127.0.0.1:8201 ... --out BATCH

A line per turn: its id, path and JSON body. Runs in `scripts/`; answers are passed on when they are whole.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

HTTP = web.AppKey("http", aiohttp.ClientSession)
TURN = re.compile(rb'"(turn_[0-9a-f]{24})"')
SESSION = re.compile(r"^/sessions/[^/]+(?=/v1)")
OWN = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
"""Headers each connection has its own of."""


def app(gateway: str, out: Path) -> web.Application:
    """The tap as an application; lines are added to `out`."""

    async def connected(tap: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
            tap[HTTP] = http
            yield

    async def passed_on(request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in OWN}
        url, http = gateway + request.path_qs, request.app[HTTP]
        async with http.request(request.method, url, data=body, headers=headers) as answer:
            raw = await answer.read()
            found = TURN.search(raw) if request.method == "POST" and answer.status == 200 else None
            if found:
                note(out, found[1].decode(), SESSION.sub("", request.path_qs), orjson.loads(body))
            return web.Response(body=raw, status=answer.status, headers={"content-type": answer.content_type})

    tap = web.Application(client_max_size=1 << 30)
    tap.cleanup_ctx.append(connected)
    tap.router.add_route("*", "/{path:.*}", passed_on)
    return tap


def note(out: Path, turn: str, path: str, body: Any) -> None:
    with out.open("ab") as file:
        file.write(orjson.dumps({"turn": turn, "path": path, "body": body}, option=orjson.OPT_APPEND_NEWLINE))


def noted(file: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and body of each turn's request."""
    lines = map(orjson.loads, file.read_bytes().splitlines())
    return {line["turn"]: (line["path"], line["body"]) for line in lines}


if __name__ == "__main__":
    web.run_app(app(sys.argv[2], Path(sys.argv[3])), host="127.0.0.1", port=int(sys.argv[1]), print=None)
