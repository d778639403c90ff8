import asyncio

from harbor_env.gateway.pace import Pace


class Passes:
    """Counts passes of the event loop, one callback a pass."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self.count += 1
        self._handle = self._loop.call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()


async def test_steps_that_come_together_are_spread_over_passes_first_come_first_served() -> None:
    pace, passes = Pace(width=2), Passes()
    done: list[tuple[int, int]] = []

    async def step(number: int) -> None:
        await pace.turn()
        done.append((number, passes.count))

    await asyncio.gather(*(step(number) for number in range(20)))
    passes.stop()
    assert [number for number, _ in done] == list(range(20))
    per_pass = [sum(1 for _, at in done if at == seen) for seen in {at for _, at in done}]
    assert max(per_pass) <= 2
    assert len(per_pass) >= 10


async def test_a_step_alone_waits_for_nothing() -> None:
    pace, passes = Pace(width=1), Passes()
    await pace.turn()
    passes.stop()
    assert passes.count == 0


async def test_a_caller_that_hung_up_holds_up_nobody() -> None:
    pace = Pace(width=1)
    await pace.turn()
    gone = [asyncio.ensure_future(pace.turn()) for _ in range(5)]
    kept = asyncio.ensure_future(pace.turn())
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.wait_for(kept, 5)
    outcomes = await asyncio.gather(*gone, return_exceptions=True)
    assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) >= 4
