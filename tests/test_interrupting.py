"""Once to end what runs and keep all there is, twice to end at once; one word may come by two ways."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BATCH = """
import asyncio, signal, sys, time
from harbor_env.cli.interrupting import interruptible

async def batch(first, then, after):
    with interruptible(lambda said: None, lambda: print("abandoned", flush=True)):
        signal.raise_signal(first)
        try:
            await asyncio.sleep(60)
        finally:
            time.sleep(after)
            signal.raise_signal(then)
            print("kept", flush=True)

asyncio.run(batch(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
"""
"""A batch that is told twice to end, the second time when so many seconds have passed."""


@pytest.mark.parametrize(
    ("first", "then", "after", "end"),
    [
        (signal.SIGTERM, signal.SIGTERM, 0.0, "kept"),  # a group's word, and its parent's
        (signal.SIGINT, signal.SIGTERM, 0.0, "kept"),
        (signal.SIGTERM, signal.SIGTERM, 1.1, "abandoned"),
        (signal.SIGINT, signal.SIGINT, 0.0, "abandoned"),  # nobody but a person tells this
    ],
)
def test_a_word_told_by_two_ways_is_one_and_a_second_one_ends_at_once(
    first: signal.Signals, then: signal.Signals, after: float, end: str
) -> None:
    words = [sys.executable, "-c", BATCH, str(int(first)), str(int(then)), str(after)]
    assert subprocess.run(words, capture_output=True, text=True, check=False).stdout.split() == [end]
