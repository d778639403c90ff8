"""Whether an address for sandboxes elsewhere leads here: asked until it does, for as long as a new tunnel takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

REACHED_WITHIN = 20.0
"""Seconds a new tunnel has until its name resolves and it lets requests through."""
ASK_AGAIN = 1.0


async def reached(trouble: Callable[[], Awaitable[str]], within: float = REACHED_WITHIN) -> str:
    """Ask what is wrong with the way here until nothing is; "", or what still was after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        said = await trouble()
        if not said or time.monotonic() + ASK_AGAIN > deadline:
            return said
        await asyncio.sleep(ASK_AGAIN)
