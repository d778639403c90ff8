"""A fake vLLM as a process: `fake_engine.py PORT`, until SIGTERM. A rank other than the first only waits.

Once rank N is up and has said so, the file $ASKED.up.N is there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path

from tests.fake_vllm import FakeVllm


class AnyTokenizersEngine(FakeVllm):
    """Knows a log probability of whatever id ends a turn."""

    def logprobs(self, temperature: float) -> dict[int, float]:
        return defaultdict(lambda: -0.25, super().logprobs(temperature))


def say_up(rank: str) -> None:
    print("rank", rank, "is up", flush=True)
    if asked := os.environ.get("ASKED"):
        Path(f"{asked}.up.{rank}").touch()


async def main(port: int) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    fake = AnyTokenizersEngine()
    fake.port = port
    rank = os.environ.get("SLURM_NODEID", "0")
    if rank == "0":
        await fake.start()
    say_up(rank)
    await told.wait()
    await fake.stop()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
