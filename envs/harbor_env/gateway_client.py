"""A client of the gateway's control routes: open a session, count it, export it, close it.

Errors are `GatewayError`; a gateway that does not answer is `engine_down`, since nothing can be sampled through it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from harbor_env.errors import STATUS, ErrorKind, GatewayError

ASK_AGAIN = 0.5
"""Seconds between requests to a gateway that does not answer."""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session just opened. `key` is its secret; `url` has the session in its path, for harnesses that send no key."""

    id: str
    key: str
    url: str
    level: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """What opens it, and what Claude Code notes of the key it was given: the end, so that is a secret too."""
        return self.key, self.id, self.key[-20:]


class GatewayClient:
    """Use as an async context manager. `url` has no trailing slash; `admin_key` may be "" on loopback.

    A gateway that does not answer is asked again for `patience` seconds: one that died may be started again.
    """

    def __init__(self, url: str, admin_key: str = "", *, patience: float = 0.0) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        self._patience = patience
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._http = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()

    async def open(self, options: Mapping[str, Any]) -> OpenSession:
        """POST /sessions. `options` is the body of the route: metadata, sampling, budget, engine, purpose."""
        body = self._object(await self._ask("POST", "/sessions", orjson.dumps(options)))
        return OpenSession(body["session_id"], body["api_key"], body["base_url"], body.get("level") or "")

    async def counts(self, session_id: str) -> dict[str, Any]:
        return self._object(await self._ask("GET", f"/sessions/{session_id}"))

    async def export(self, session_id: str, export_format: str) -> bytes:
        return await self._ask("GET", f"/sessions/{session_id}/export?format={export_format}")

    async def close(self, session_id: str) -> None:
        """DELETE the session and everything captured in it."""
        await self._ask("DELETE", f"/sessions/{session_id}")

    async def health(self) -> dict[str, Any]:
        return self._object(await self._ask("GET", "/health"))

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        if self._http is None:
            raise RuntimeError("GatewayClient is used outside its context")
        headers = {"Content-Type": "application/json"} if body is not None else {}
        until = time.monotonic() + self._patience
        while True:
            try:
                async with self._http.request(method, self.url + path, data=body, headers=headers) as response:
                    answer = await response.read()
                break
            except (aiohttp.ClientError, TimeoutError) as error:
                if time.monotonic() + ASK_AGAIN > until:
                    raise GatewayError("engine_down", f"The gateway at {self.url} does not answer: {error}.") from error
            await asyncio.sleep(ASK_AGAIN)
        if response.status >= 400:
            raise GatewayError(_kind(response.status), _message(answer) or f"The gateway answered {response.status}.")
        return answer

    def _object(self, answer: bytes) -> dict[str, Any]:
        try:
            document = orjson.loads(answer)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise GatewayError("internal", f"What answers at {self.url} is no gateway.")
        return document


def _kind(status: int) -> ErrorKind:
    return next((kind for kind, code in STATUS.items() if code == status), "internal")


def _message(answer: bytes) -> str:
    try:
        document = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return ""
    error = document.get("error") if isinstance(document, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
