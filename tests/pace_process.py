"""A process of its own in the queue: tells the wall-clock time of each place, then waits to be killed or ended."""

import asyncio
import sys
import time
from pathlib import Path

from harbor_env.sandboxes.pace import StartRate, place_of


async def take(folder: Path, pace: StartRate, count: int) -> None:
    for _ in range(count):
        async with place_of("b", pace, folder) as place:
            await place.come()
            print(time.time(), flush=True)
            if pace.running:
                await asyncio.to_thread(sys.stdin.readline)


folder, per_second, running, count = sys.argv[1:]
asyncio.run(take(Path(folder), StartRate(float(per_second), running=int(running)), int(count)))
