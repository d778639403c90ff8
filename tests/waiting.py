"""Waiting for what sets no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(true: Callable[[], bool]) -> None:
    """Wait for something another process or thread does; the test's own time-out ends it."""
    while not true():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.02)
