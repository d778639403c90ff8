"""Whether the address sandboxes elsewhere are given leads to this very server: asked through that address.

Invariant: the address is handed out only while a request through it has lately come back with the answer to a nonce
made here, so neither a dead tunnel nor a stranger's server behind it is ever taken for the gateway.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time

import aiohttp

from harbor_env.errors import UsageError
from harbor_env.exposing.reaching import REACHED_WITHIN, reached

PROOF = "x-capture-proof"
"""The header that answers a nonce, given as `GET /health?nonce=NONCE` below the gateway's address."""
TRUSTED_FOR = 30.0


class Outside:
    """The gateway at `url` as the world sees it, "" where it is not exposed. All times are in seconds."""

    def __init__(self, url: str = "", *, within: float = REACHED_WITHIN, trusted_for: float = TRUSTED_FOR) -> None:
        self.url = url.rstrip("/")
        self._secret = secrets.token_bytes(32)
        self._within = within
        self._trusted_for = trusted_for
        self._reached_at: float | None = None
        self._asking: asyncio.Task[None] | None = None

    def proof(self, nonce: str) -> str:
        """What this server alone answers to `nonce`."""
        return hmac.new(self._secret, nonce.encode(), hashlib.sha256).hexdigest()

    async def reached(self) -> str:
        """The address, once it is known to lead here. UsageError: it does not; the next call asks again."""
        if self._reached_at is None or time.monotonic() - self._reached_at > self._trusted_for:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask())
            await asyncio.shield(self._asking)
        return self.url

    async def _ask(self) -> None:
        self._reached_at = None
        timeout = aiohttp.ClientTimeout(total=self._within)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as http:
            if trouble := await reached(lambda: self._trouble(http), self._within):
                raise UsageError(
                    f"Sandboxes cannot reach this server: {trouble}. Check --public-url or --expose, and that the"
                    " address leads to this port."
                )
        self._reached_at = time.monotonic()

    async def _trouble(self, http: aiohttp.ClientSession) -> str:
        """What is wrong with the way here, "" where nothing is. UsageError: it leads to somebody else."""
        url, nonce = f"{self.url}/health", secrets.token_urlsafe(24)
        try:
            async with http.get(url, params={"nonce": nonce}, allow_redirects=False) as response:
                answer = response.headers.get(PROOF, "")
                status = response.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return f"{url} does not answer ({error or 'in time'})"
        if hmac.compare_digest(answer.encode(), self.proof(nonce).encode()):
            return "" if status == 200 else f"the gateway behind {url} answers {status}"
        if status == 200:
            raise UsageError(f"Sandboxes cannot reach this server: at {url} another server answers.")
        return f"{url} answers {status}"
