"""The gateway at this server's own address, below /capture: one port for a container or a tunnel to expose.

Requests and answers pass as they are, streamed both ways; a caller that hangs up hangs up on the gateway too.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs

import aiohttp
import orjson
from multidict import CIMultiDict
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send
from yarl import URL

from harbor_env.config import GatewayConfig
from harbor_env.errors import GatewayError
from harbor_env.gateway.bodies import read_raw
from harbor_env.server.outages import AWAY
from harbor_env.server.outside import PROOF

if TYPE_CHECKING:
    from harbor_env.server.backend import Backend

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade", "host"}
)
LONGEST_NONCE = 200
BODY_LIMIT = GatewayConfig().body_limit
"""Bytes. The gateway's own limit: anybody may call an exposed gateway, and nothing larger would pass it."""


class CaptureProxy:
    """An ASGI app that passes everything on to the backend's gateway."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            auto_decompress=False,
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        address = self._backend.address
        if address is None or self._http is None:
            await _answer_down(send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        query = scope["query_string"].decode("latin-1")
        url = URL(f"{address.url}{path}{'?' if query else ''}{query}", encoded=True)
        with contextlib.suppress(ClientDisconnect):
            await self._pass(Request(scope, receive), url, self._signed(path, query, send), self._http)

    def _signed(self, path: str, query: str, send: Send) -> Send:
        """`send`, which answers the nonce of a request for the gateway's health: whoever asked knows it came here."""
        nonce = parse_qs(query).get("nonce", [""])[0] if path == "/health" else ""
        if not 0 < len(nonce) <= LONGEST_NONCE:
            return send
        header = (PROOF.encode(), self._backend.outside.proof(nonce).encode())

        async def signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], header]}
            await send(message)

        return signed

    async def _pass(self, request: Request, url: URL, send: Send, http: aiohttp.ClientSession) -> None:
        """The answer, or nothing more once the caller is gone."""
        try:
            body = await read_raw(request.stream(), BODY_LIMIT)
        except GatewayError as error:
            await _answer_error(send, error.status, {"type": error.kind, "message": error.message})
            return
        headers = CIMultiDict((name, value) for name, value in request.headers.items() if name not in HOP_BY_HOP)
        gone = asyncio.create_task(_until_gone(request.receive))
        working = asyncio.create_task(_answer(http, request.method, url, headers, body, send))
        try:
            await asyncio.wait({gone, working}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            gone.cancel()
            working.cancel()
            await asyncio.wait({gone, working})


async def _answer(
    http: aiohttp.ClientSession, method: str, url: URL, headers: CIMultiDict[str], body: bytes, send: Send
) -> None:
    """Pass the answer on as it comes. A gateway that dies in mid-answer leaves it unfinished, which a caller sees."""
    begun = False
    try:
        async with http.request(method, url, headers=headers, data=body or None, allow_redirects=False) as response:
            kept = [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in response.headers.items()
                if name.lower() not in HOP_BY_HOP
            ]
            begun = True
            await send({"type": "http.response.start", "status": response.status, "headers": kept})
            async for chunk in response.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
    except aiohttp.ClientError:
        if not begun:
            await _answer_down(send)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer_down(send: Send) -> None:
    down = {"type": "engine_down", "message": AWAY}
    await _answer_error(send, 503, down, (b"retry-after", b"2"))


async def _answer_error(send: Send, status: int, error: dict[str, str], *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", b"application/json"), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps({"error": error})})
