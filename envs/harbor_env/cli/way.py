"""Whether the address that a batch's sandboxes elsewhere are given leads to the batch's own gateway.

Invariant: a stranger that answers there is never taken for the gateway, and learns no key but that of a session opened
for the question and closed with it.
"""

from __future__ import annotations

import random
import secrets

import aiohttp

from harbor_env.errors import UsageError
from harbor_env.exposing.reaching import REACHED_WITHIN, reached
from harbor_env.gateway_client import GatewayClient
from harbor_env.rollout import GatewayAddress

OPENS, REFUSES = 200, 401
QUESTION = {"model": "policy", "messages": [{"role": "user", "content": "?"}]}


async def check_way(public: str, address: GatewayAddress, *, within: float = REACHED_WITHIN) -> None:
    """UsageError: `public` does not lead to the gateway at `address` within so many seconds."""
    timeout = aiohttp.ClientTimeout(total=within)
    async with (
        GatewayClient(address.url, address.admin_key) as gateway,
        aiohttp.ClientSession(timeout=timeout, trust_env=True) as http,
    ):
        session = await gateway.open({"purpose": "eval"})
        try:
            trouble = await reached(lambda: _trouble(http, public, session.key), within)
        finally:
            await gateway.close(session.id)
    if trouble:
        raise UsageError(f"The gateway cannot be reached through --expose: {trouble}.")


async def _trouble(http: aiohttp.ClientSession, public: str, key: str) -> str:
    """What is wrong with the way, "" where nothing is: only our gateway tells its session's key from one made up."""
    made_up = key[:-20] + secrets.token_hex(10)
    url = f"{public}/v1/messages/count_tokens"
    for given, expected in random.sample([(key, OPENS), (made_up, REFUSES)], 2):
        try:
            async with http.post(url, json=QUESTION, headers={"x-api-key": given}, allow_redirects=False) as response:
                status = response.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return f"{public} does not answer ({error or 'in time'})"
        if status in (OPENS, REFUSES) and status != expected:
            return f"another server answers at {public}"
        if status != expected:
            return f"{public} answers {status}"
    return ""
