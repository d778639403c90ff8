"""Ctrl-C and SIGTERM: once to end what runs and keep all there is, twice to end at once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130
SAME_WORD = 1.0
"""Seconds in which a SIGTERM after the first signal is that word once more: a group's, and then a parent's."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(say: Callable[[str], None], abandon: Callable[[], None]) -> Iterator[None]:
    """The first signal cancels the current task; the next calls `abandon` and ends this process where it stands."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    told_at = 0.0

    def at_once(number: int, frame: object) -> None:
        if number == signal.SIGTERM and time.monotonic() - told_at < SAME_WORD:
            return
        abandon()
        os._exit(INTERRUPTED)

    def first() -> None:
        nonlocal told_at
        told_at = time.monotonic()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, at_once)
        say("Ending what runs, nothing more is started. Once more ends at once.")
        if task is not None:
            task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
