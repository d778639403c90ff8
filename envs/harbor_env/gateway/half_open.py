"""HTTP for clients that end their side of a connection when they have sent their request, and wait for the answer.

Invariant: such a client gets its answer, and one that went away is noticed all the same. The two look alike until
something is sent to them: an interim response, which every client must skip, makes the system of one that went away
reset the connection.
"""

from __future__ import annotations

import asyncio

from harbor_env.gateway.gathered_writes import GatheredWrites
from harbor_env.gateway.no_upgrade import NoUpgradeProtocol

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 3.0
"""Seconds between looks. The second shows what the first provoked; after it they get rarer."""


class HalfOpenProtocol(NoUpgradeProtocol):
    """uvicorn's protocol, which takes the end of what a client sends for the end of the client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheredWrites(transport, self.loop))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open: only while a request that came whole is being answered."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        self._look(FIRST_PAUSE)
        return True

    def _look(self, pause: float) -> None:
        cycle = self.cycle
        if self.transport.is_closing() or cycle.response_complete:
            return
        if not self.pipeline and not cycle.response_started and self.scope["http_version"] == "1.1":
            self.transport.write(INTERIM)
        self.loop.call_later(pause, self._look, min(2 * pause, LONGEST_PAUSE))
