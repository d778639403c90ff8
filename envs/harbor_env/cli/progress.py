"""A batch while it runs: who does what, how it stands, how fast it goes and how long it takes.

Invariant: speed and time left are of this run alone; rewards and counts include what earlier runs settled.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from harbor_env.batch import Job
from harbor_env.cli.summary import kinds
from harbor_env.outcome import RolloutResult
from harbor_env.tally import Standing, seconds_left, standing

SHOWN = 12
"""Running rollouts in the live table; those that run longest come first."""


@dataclass(slots=True)
class Progress:
    """Told of a batch by its report. `clock` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    total: Counter[str] = field(default_factory=Counter)
    running: dict[str, tuple[Job, str, float]] = field(default_factory=dict)
    results: list[RolloutResult] = field(default_factory=list)
    ended_now: list[RolloutResult] = field(default_factory=list)
    began: float = 0.0

    def plan(self, jobs: Sequence[Job]) -> None:
        self.total = Counter(job.harness for job in jobs)
        self.began = self.clock()

    def started(self, job: Job) -> None:
        self.running[job.name] = (job, "start", self.clock())

    def phase(self, job: Job, phase: str) -> None:
        self.running[job.name] = (job, phase, self.running[job.name][2])

    def ended(self, job: Job, result: RolloutResult) -> None:
        self.running.pop(job.name, None)
        self.results.append(result)
        self.ended_now.append(result)

    def line(self) -> str:
        """Everything on one line."""
        now = standing(self.results)
        parts = [f"{now.n}/{self.total.total()} done", f"{len(self.running)} running", *_scores(now)]
        return "progress: " + ", ".join([*parts, *self._pace(None)])

    def table(self) -> Group:
        """A row per harness, and below it what runs."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for title in ("harness", "done", "running", "reward so far", "passed", "unscorable", "pace", "left"):
            table.add_column(title)
        for harness in self.total:
            table.add_row(*self._row(harness))
        doing = Table.grid(padding=(0, 2))
        longest = sorted(self.running.values(), key=lambda entry: entry[2])
        for job, phase, began in longest[:SHOWN]:
            doing.add_row(Text(job.name, overflow="ellipsis", no_wrap=True), phase, f"{self.clock() - began:.0f}s")
        more = [Text(f"and {len(longest) - SHOWN} more", style="dim")] if len(longest) > SHOWN else []
        return Group(table, doing, *more)

    def _row(self, harness: str) -> list[str]:
        now = standing(result for result in self.results if result.harness == harness)
        running = sum(job.harness == harness for job, _, _ in self.running.values())
        mean = "-" if now.mean is None else f"{now.mean:.2f}"
        rate = "-" if now.rate is None else f"{now.rate:.0%} (n={now.scored})"
        *pace, left = self._pace(harness) or ["-", "-"]
        return [harness, f"{now.n}/{self.total[harness]}", str(running), mean, rate, kinds(now), ", ".join(pace), left]

    def _pace(self, harness: str | None) -> list[str]:
        """Turns and tokens a minute and the time left, of one harness or of all; nothing before a first result."""
        ended = [result for result in self.ended_now if harness in (None, result.harness)]
        elapsed = self.clock() - self.began
        if not ended or elapsed <= 0:
            return []
        now = standing(ended)
        done = sum(harness in (None, result.harness) for result in self.results)
        total = self.total.total() if harness is None else self.total[harness]
        left = seconds_left(len(ended), len(ended) + total - done, elapsed)
        pace = [f"{60 * now.turns / elapsed:.0f} turns/min", f"{60 * now.tokens / elapsed:,.0f} tokens/min"]
        return [*pace, f"{duration(left or 0)} left"]


def _scores(now: Standing) -> list[str]:
    scores = [] if now.mean is None else [f"reward {now.mean:.2f}", f"passed {now.rate:.0%} (n={now.scored})"]
    return scores + ([f"unscorable {kinds(now)}"] if now.unscorable else [])


def duration(seconds: float) -> str:
    """`40s`, `12m`, `3h05m`."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole}s"
    minutes = round(seconds / 60)
    return f"{minutes}m" if minutes < 90 else f"{minutes // 60}h{minutes % 60:02d}m"
