"""Evaluations compared: pass@1 per harness with its interval, and before against after on the same tasks.

Pure. A task is the unit: its samples are averaged first, and intervals come from resampling tasks, so that several
samples of one task do not look like several tasks. Rollouts that could not be scored are in no mean and are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harbor_env.reward import PASSED

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout of an evaluation. `reward` None: it could not be scored. A cost that is not known is NaN.

    `task` is the task's number and name: splits of a dataset may name different tasks alike.
    """

    task: str
    harness: str
    reward: float | None
    tool_calls: float = math.nan
    tokens: float = math.nan

    @property
    def passed(self) -> bool:
        return self.reward is not None and self.reward >= PASSED


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks with the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float
    tasks: int
    unscorable: int = 0

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Change:
    """After less before, per harness: pass@1 over the tasks both scored, and cost over the tasks both passed.

    `tool_calls` and `tokens` are mean (before, after) over `both_passed` tasks.
    """

    passed: Estimate
    both_passed: int
    tool_calls: tuple[float, float]
    tokens: tuple[float, float]
    cells: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def samples_of(results: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """From lines of a batch's results.jsonl."""
    return [
        Sample(
            _task(result),
            result["harness"],
            result["reward"],
            result["counts"].get("tool_calls", math.nan),
            result["counts"].get("sampled_tokens", math.nan),
        )
        for result in results
    ]


def _task(result: Mapping[str, Any]) -> str:
    """What the names of all attempts at one task begin with; they end with the harness and the attempt's number."""
    attempts: str = result["name"].rpartition("-")[0]
    return attempts.removesuffix("-" + result["harness"].rpartition(":")[2]) or result["name"]


def pass_rate(samples: Sequence[Sample], seed: int = 0) -> Estimate:
    """pass@1 of one harness. ValueError: nothing was scored."""
    rates = _by_task(samples)
    if not rates:
        raise ValueError("No rollout was scored.")
    return _estimate(list(rates.values()), seed, sum(sample.reward is None for sample in samples))


def change(before: Sequence[Sample], after: Sequence[Sample], seed: int = 0) -> Change:
    """Paired by task. ValueError: no task was scored both times."""
    first, second = _by_task(before), _by_task(after)
    shared = [task for task in first if task in second]
    if not shared:
        raise ValueError("No task was scored both times: compare evaluations of one dataset and split.")
    unscorable = sum(sample.reward is None for sample in (*before, *after))
    passed = _estimate([second[task] - first[task] for task in shared], seed, unscorable)
    both = [task for task in shared if first[task] > 0 and second[task] > 0]
    return Change(
        passed,
        len(both),
        (_cost(before, both, "tool_calls"), _cost(after, both, "tool_calls")),
        (_cost(before, both, "tokens"), _cost(after, both, "tokens")),
        {task: (first[task], second[task]) for task in shared},
    )


def by_harness(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples of each harness, in their order."""
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(sample.harness, []).append(sample)
    return grouped


def _by_task(samples: Iterable[Sample]) -> dict[str, float]:
    grouped: dict[str, list[bool]] = {}
    for sample in samples:
        if sample.reward is not None:
            grouped.setdefault(sample.task, []).append(sample.passed)
    return {task: float(np.mean(passed)) for task, passed in grouped.items()}


def _estimate(values: Sequence[float], seed: int, unscorable: int) -> Estimate:
    array = np.asarray(values, dtype=float)
    draws = np.random.default_rng(seed).integers(0, len(array), size=(RESAMPLES, len(array)))
    low, high = np.percentile(array[draws].mean(axis=1), [2.5, 97.5])
    return Estimate(float(array.mean()), float(low), float(high), len(array), unscorable)


def _cost(samples: Iterable[Sample], tasks: Sequence[str], name: str) -> float:
    """The mean of a cost over the passed samples of each task, then over tasks; NaN where there is no task."""
    per_task: dict[str, list[float]] = {task: [] for task in tasks}
    for sample in samples:
        if sample.passed and sample.task in per_task:
            per_task[sample.task].append(getattr(sample, name))
    return float(np.mean([np.mean(costs) for costs in per_task.values()])) if per_task else float("nan")
