"""Once to end what runs and keep all there is, twice to end at once; one word may come by two ways."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BATCH = """
import asyncio, signal, sys
from harbor_env.cli import interrupting
from harbor_env.cli.interrupting import interruptible

interrupting.SAME_WORD = 30.0

async def batch(first, then, after):
    with interruptible(lambda said: None, lambda: print("abandoned", flush=True)):
        signal.raise_signal(first)
        try:
            await asyncio.sleep(60)
        finally:
            if after:
                interrupting.SAME_WORD = 0.0
            signal.raise_signal(then)
            print("kept", flush=True)

asyncio.run(batch(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
"""
"""A batch that is told twice to end, the second time within what counts as the same word or after it."""


@pytest.mark.parametrize(
    ("first", "then", "after", "end"),
    [
        (signal.SIGTERM, signal.SIGTERM, False, "kept"),  # a group's word, and its parent's
        (signal.SIGINT, signal.SIGTERM, False, "kept"),
        (signal.SIGTERM, signal.SIGTERM, True, "abandoned"),
        (signal.SIGINT, signal.SIGINT, False, "abandoned"),  # nobody but a person tells this
    ],
)
def test_a_word_told_by_two_ways_is_one_and_a_second_one_ends_at_once(
    first: signal.Signals, then: signal.Signals, after: bool, end: str
) -> None:
    words = [sys.executable, "-c", BATCH, str(int(first)), str(int(then)), str(int(after))]
    assert subprocess.run(words, capture_output=True, text=True, check=False).stdout.split() == [end]
