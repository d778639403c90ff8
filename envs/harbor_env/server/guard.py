"""The admin key in front of everything that mints, runs or reads; what is public tells nothing of anybody's episode."""

from __future__ import annotations

import secrets

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

PUBLIC = frozenset({"/", "/health", "/schema", "/metadata", "/openapi.json", "/docs", "/redoc", "/list_environments"})
OWN_KEYS = "/capture/"
"""Below it lies the gateway, which knows its sessions' keys and its own admin key."""
ANSWER = b'{"detail": "This route needs the admin key: Authorization: Bearer KEY."}'

RPC_ANSWER = b"""{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "needs the admin key"}}"""
"""JSON-RPC refuses in its body, with status 200."""


class Guard:
    """ASGI middleware. Without a key, which only a loopback server may be, it lets everything pass.

    On a private Space the platform's own token takes the Authorization header; `x-admin-key` does as well.
    """

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._allowed(scope):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"] == "/mcp":
            await _respond(send, 200, [(b"content-type", b"application/json")], RPC_ANSWER)
            return
        headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
        if scope["type"] == "http":
            await _respond(send, 401, headers, ANSWER)
        elif "websocket.http.response" in scope.get("extensions", {}):
            await receive()
            await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": ANSWER})
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    def _allowed(self, scope: Scope) -> bool:
        path = scope["path"]
        if not self._key or path in PUBLIC or path.startswith(OWN_KEYS):
            return True
        headers = Headers(scope=scope)
        _, _, bearer = headers.get("authorization", "").partition(" ")
        given = (bearer.strip(), headers.get("x-admin-key", ""))
        return any(secrets.compare_digest(one.encode(), self._key) for one in given)


async def _respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
