"""When memory is searched for unreachable cycles: each search stops everything, the longer the more memory there is.

Invariant: while calls are served only what was made lately is searched; all of it is when the gateway has a pause.
"""

from __future__ import annotations

import asyncio
import gc

from harbor_env.gateway.metrics import Metrics

YOUNG = 20_000
"""Objects made before the youngest are searched: those of about a hundred calls."""
NEVER = 1_000_000
LOOK_EVERY = 20.0
"""Seconds between looks for a pause."""


def search_only_the_young() -> None:
    """To be called when all that stays for the whole run is in memory: a tokenizer alone is a million objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, NEVER)


async def search_all_in_pauses(metrics: Metrics, *, look_every: float = LOOK_EVERY) -> None:
    """Run until cancelled. Sessions are trees without cycles, so a gateway that never pauses loses little."""
    served = 0
    while True:
        await asyncio.sleep(look_every)
        if metrics.in_flight == 0 and metrics.served != served:
            served = metrics.served
            gc.collect()
