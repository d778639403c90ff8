"""A batch while it runs: one line with how it stands, a table per harness, on a clock of the test's own."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from harbor_env.batch import Job
from harbor_env.cli.progress import Progress, duration
from harbor_env.outcome import Reason, RolloutResult

PASSED = RolloutResult("", "t", "a", "local", ok=True, reward=1.0, counts={"turns": 4, "sampled_tokens": 600})
LOST = replace(PASSED, ok=False, reward=None, reason=Reason("engine", ""), counts={})


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def half_done() -> Progress:
    """Of four rollouts of `a` one is settled by an earlier run, two ended, one runs; the two of `b` have not begun."""
    clock = Clock()
    progress = Progress(clock)
    jobs = [
        Job(f"{name}{number}", number, Path("t"), name, 0) for name, n in (("a", 4), ("b", 2)) for number in range(n)
    ]
    progress.plan(jobs)
    progress.results.append(PASSED)
    for job, result in zip(jobs[1:], (PASSED, LOST), strict=False):
        progress.started(job)
        progress.ended(job, result)
    progress.started(jobs[3])
    progress.phase(jobs[3], "agent")
    clock.now += 60
    return progress


def test_the_line_has_what_is_done_what_it_earned_and_how_long_the_rest_takes() -> None:
    assert half_done().line() == (
        "progress: 3/6 done, 1 running, reward 1.00, passed 100% (n=2), unscorable engine 1,"
        " 4 turns/min, 600 tokens/min, 2m left"
    )


def test_before_the_first_result_there_is_no_pace() -> None:
    progress = Progress(Clock())
    progress.plan([Job("a", 0, Path("t"), "a", 0)])
    assert progress.line() == "progress: 0/1 done, 0 running"


def test_the_table_has_a_row_per_harness_and_one_per_running_rollout() -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(half_done().table())
    _, first, second, running = [line.rstrip() for line in console.export_text().splitlines()]
    assert first.split("  ")[0] == "a"
    assert "3/4" in first
    assert "100% (n=2)" in first
    assert "engine 1" in first
    assert "30s left" in first
    assert second.split()[:3] == ["b", "0/2", "0"]
    assert running.split() == ["a3", "agent", "60s"]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (89, "89s"), (600, "10m"), (11_100, "3h05m")])
def test_a_duration_is_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
