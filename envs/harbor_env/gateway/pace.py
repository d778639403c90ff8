"""How much work one pass of the event loop may do before it looks at its sockets and timers again.

Without it a thousand requests that arrive together are decoded and rendered in one pass, and until that ends no timer
is exact, no connection is accepted and `/health` is not answered.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Pace:
    """`width` heavy steps a pass, first come, first served. For one event loop."""

    def __init__(self, width: int = 4) -> None:
        self._width = width
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Return when this pass of the loop has room for one more heavy step; at once where it has."""
        loop = asyncio.get_running_loop()
        if self._taken < self._width and not self._waiting:
            self._take(loop)
            return
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiting)
        await waiting

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        self._taken += 1
        if self._taken == 1:
            loop.call_soon(self._next_pass, loop)

    def _next_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        self._taken = 0
        while self._waiting and self._taken < self._width:
            waiting = self._waiting.popleft()
            if not waiting.done():  # else its caller hung up
                waiting.set_result(None)
                self._take(loop)
