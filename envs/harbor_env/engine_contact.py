"""Is there an engine behind the gateway? Asked before a batch, because against a dead one agents only retry.

Asking is one token through a session of its own, which is deleted again: that is what makes a gateway probe an engine
it has not reached yet.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import aiohttp

from harbor_env.errors import UsageError
from harbor_env.gateway_client import GatewayClient
from harbor_env.rollout import GatewayAddress
from harbor_env.serving_gateway import EngineFlags, address_of

POLL = 3.0
"""Seconds between two questions to an engine that is not there yet."""
ANSWERED_WITHIN = 120.0
CONNECTED_WITHIN = 10.0
_NOT_YET = re.compile(r" answered 5\d\d:")
"""In the words of a gateway: the engine answers, but says itself that it cannot serve, as while it loads a model."""


async def reached(
    flags: EngineFlags,
    address: GatewayAddress,
    say: Callable[[str], None],
    *,
    patience: float = 0.0,
    poll: float = POLL,
) -> GatewayAddress:
    """The address with what is known of its engine now. UsageError: none answers within `patience` seconds.

    `say` hears what is waited for. What no waiting mends, such as a model the engine does not serve, is not waited for.
    """
    deadline = time.monotonic() + patience
    said = ""
    while True:
        problem, hopeless = await _ask(address)
        if not problem:
            return await _known(flags, address)
        if hopeless or time.monotonic() >= deadline:
            raise UsageError(_advice(problem, waited=patience, hopeless=hopeless))
        if problem != said:
            said = problem
            say(f"Waiting up to {deadline - time.monotonic():.0f} s for the engine: {problem}")
        await asyncio.sleep(poll)


async def check_listening(url: str) -> None:
    """UsageError where nothing takes connections at the engine's URL: told before anything slow begins."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECTED_WITHIN):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise UsageError(_advice(f"nothing listens at {url} ({why})", waited=0.0, hopeless=False)) from error
    writer.close()


async def _ask(address: GatewayAddress) -> tuple[str, bool]:
    """What keeps the engine from sampling one token, "" if nothing; and whether that is sure to stay so."""
    body = {"model": address.model, "max_tokens": 1, "messages": [{"role": "user", "content": "Say one word."}]}
    limit = aiohttp.ClientTimeout(total=ANSWERED_WITHIN)
    async with GatewayClient(address.url, address.admin_key) as client:
        session = await client.open({"metadata": {"purpose": "is the engine there?"}, "purpose": "eval"})
        try:
            async with (
                aiohttp.ClientSession(headers={"Authorization": f"Bearer {session.key}"}, timeout=limit) as http,
                http.post(f"{address.url}/v1/chat/completions", json=body) as response,
            ):
                answer = await response.json(content_type=None)
                status = response.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return f"no answer through the gateway ({type(error).__name__}: {error})", False
        finally:
            await client.close(session.id)
    if status < 400:
        return "", False
    message = str((answer.get("error") or {}).get("message") or answer)
    return message, status in (400, 401, 404, 502) and not _NOT_YET.search(message)


async def _known(flags: EngineFlags, address: GatewayAddress) -> GatewayAddress:
    async with GatewayClient(address.url, address.admin_key) as client:
        facts = (await client.health()).get("engine") or {}
    return address_of(address.url, address.admin_key, flags, facts)


def _advice(problem: str, *, waited: float, hopeless: bool) -> str:
    mend = "correct --llm-url (the engine's base URL, such as http://127.0.0.1:8000) or --model"
    if hopeless:
        return f"The engine cannot be used: {problem.rstrip('.')}. Please {mend}."
    after = f" after {waited:g} s" if waited else ""
    longer = "a longer --wait-for-engine" if waited else "--wait-for-engine SECONDS"
    return f"There is no engine{after}: {problem.rstrip('.')}. Start it, give {longer}, or {mend}."
