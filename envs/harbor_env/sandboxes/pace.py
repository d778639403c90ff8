"""How fast sandboxes are made, over all processes of this machine: a leaky bucket and slots, kept in files.

Invariant: a process that dies gives back what it held at once, for slots are file locks; the bucket holds only a time.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harbor_env.errors import UsageError

LIMITS = "OPENENV_HARBOR_SANDBOX_LIMITS"
"""Environment variable: NAME=PER_SECOND/s, NAME=COUNT or NAME=PER_SECOND/s:COUNT, with commas; 0 is no limit."""

PUT_BACK = 60.0
"""Seconds. A bucket filled so far in the future was filled before the clock was put back, and counts as empty."""
_LOOK_EVERY = 0.2


@dataclass(frozen=True, slots=True)
class StartRate:
    """Limits of one backend, and what to do at them. Zeros: no limit.

    `per_second` sandboxes are begun; `starting` are between their start and their harness's; `running` exist at a time.
    A creation refused for want of capacity is tried `tries` times in all, the first again after `first_wait` seconds,
    each later one after twice as long.
    """

    per_second: float = 5.0
    starting: int | None = None
    running: int = 0
    tries: int = 6
    first_wait: float = 2.0

    @property
    def slots(self) -> int:
        """Sandboxes at a time, of whichever kind is counted; `starting` 0 is sized to this machine's processors."""
        if self.starting is None:
            return self.running
        return self.starting or 2 * len(os.sched_getaffinity(0))

    def wait_before(self, attempt: int) -> float:
        """Seconds before a further try, 0 the first, spread so that many that were refused do not come back at once."""
        return self.first_wait * float(2**attempt) * random.uniform(0.5, 1.5)


def with_limits(name: str, pace: StartRate, variables: Mapping[str, str]) -> StartRate:
    """The pace of the backend `name` with what the user set in `LIMITS`. UsageError where that cannot be read."""
    for part in variables.get(LIMITS, "").split(","):
        if not part.strip():
            continue
        match = re.fullmatch(r"\s*([^=]+)=(?:(\d+(?:\.\d+)?)/s)?:?(\d+)?\s*", part)
        if match is None or (match[2] is None and match[3] is None):
            raise UsageError(
                f"{LIMITS} has {part.strip()!r}: expected NAME=PER_SECOND/s, NAME=COUNT or both with a colon."
            )
        if match[1] == name and match[2] is not None:
            pace = replace(pace, per_second=float(match[2]))
        if match[1] == name and match[3] is not None:
            counted = "running" if pace.starting is None else "starting"
            pace = replace(pace, **{counted: int(match[3])})
    return pace


@dataclass(slots=True)
class Place:
    """One sandbox's place in the queue. `waited` is in seconds."""

    folder: Path
    pace: StartRate
    waited: float = 0.0
    _slot: int = field(default=-1)

    async def come(self) -> None:
        """Wait until the sandbox may be begun."""
        began = time.monotonic()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.pace.slots and self._slot < 0:
            while (slot := self._free_slot()) < 0:  # noqa: ASYNC110  (another process gives it back)
                await asyncio.sleep(_LOOK_EVERY * random.uniform(0.5, 1.5))
            self._slot = slot
        if self.pace.per_second:
            await asyncio.sleep(max(0.0, self._next_time() - time.time()))
        self.waited += time.monotonic() - began

    def started(self) -> None:
        """The harness begins: a slot that counts starts is free again."""
        if self.pace.starting is not None:
            self.release()

    def release(self) -> None:
        if self._slot >= 0:
            os.close(self._slot)
            self._slot = -1

    def _free_slot(self) -> int:
        """The descriptor of a slot, now held; -1 where all are taken."""
        for number in random.sample(range(self.pace.slots), self.pace.slots):
            slot = os.open(self.folder / f"slot-{number}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(slot)
            else:
                return slot
        return -1

    def _next_time(self) -> float:
        """The moment, on the wall clock, that the bucket gives to this sandbox."""
        fd = os.open(self.folder / "bucket", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            now = time.time()
            held = re.fullmatch(rb"(\d+\.\d+) (\d+\.\d+)", os.read(fd, 64))
            free, filled = (float(held[1]), float(held[2])) if held else (now, now)
            if free < now or filled > now + PUT_BACK:
                free = now
            following = free + random.uniform(1.0, 1.2) / self.pace.per_second
            os.pwrite(fd, f"{following:020.6f} {now:020.6f}".encode(), 0)
            return free
        finally:
            os.close(fd)


@asynccontextmanager
async def place_of(name: str, pace: StartRate, cache: Path) -> AsyncIterator[Place]:
    """A place in the queue of the backend `name`; what it holds is given back at the end, however that comes."""
    place = Place(cache / "pace" / re.sub(r"[^\w.-]", "_", name), pace)
    try:
        yield place
    finally:
        place.release()
