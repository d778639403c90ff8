from __future__ import annotations

import asyncio
import gc
import weakref

from harbor_env.gateway.garbage import search_all_in_pauses
from harbor_env.gateway.metrics import Metrics
from tests.waiting import until


class Link:
    def __init__(self) -> None:
        self.itself = self


async def test_old_memory_is_searched_in_a_pause_after_calls_and_never_during_one() -> None:
    link = Link()
    gc.collect()
    gone = weakref.ref(link)
    metrics = Metrics()
    metrics.in_flight = 1
    metrics.calls["chat", "ok"] = 1
    gc.disable()
    searching = asyncio.create_task(search_all_in_pauses(metrics, look_every=0.0))
    try:
        del link
        for _ in range(100):
            await asyncio.sleep(0)
        assert gone() is not None
        metrics.in_flight = 0
        await until(lambda: gone() is None)
    finally:
        gc.enable()
        searching.cancel()
