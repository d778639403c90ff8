"""Evaluations compared, a task as the unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from harbor_env.batch import plan_jobs
from harbor_env.outcome import Reason, RolloutResult
from trl_integration.compare import Sample, by_harness, change, pass_rate, samples_of


def run(*rewards: float | None, harness: str = "pi", calls: int = 3, samples: int = 1) -> list[Sample]:
    return [
        Sample(f"task-{number}", harness, reward, calls, 10 * calls)
        for number, reward in enumerate(rewards)
        for _ in range(samples)
    ]


def evaluated(tasks: Sequence[str], *rewards: float | None, harness: str = "own.module:MINE") -> list[Sample]:
    """The samples of a batch of two attempts at each task, named as batches name them."""
    jobs = plan_jobs([(number, Path(task)) for number, task in enumerate(tasks)], [harness], attempts=2)
    gone = Reason("sandbox", "gone")
    return samples_of(
        asdict(
            RolloutResult(
                *(job.name, job.task.name, job.harness, "local"),
                ok=reward is not None,
                reward=reward,
                reason=None if reward is not None else gone,
            )
        )
        for job, reward in zip(jobs, rewards, strict=True)
    )


@pytest.mark.parametrize("harness", ["pi", "mini-swe-agent", "own.module:MINE"])
def test_attempts_at_a_task_are_one_task_and_equal_names_in_two_splits_are_two(harness: str) -> None:
    tasks = ["train/count", "heldout/count", "heldout/count-2"]
    rate = pass_rate(evaluated(tasks, 1, 1, 0, 0, 1, 0, harness=harness))
    assert (rate.tasks, rate.mean) == (3, 0.5)


def test_equal_names_in_two_splits_are_paired_each_with_itself_whatever_could_not_be_scored() -> None:
    tasks = ["train/count", "heldout/count"]
    before, after = evaluated(tasks, 1, 1, 0, None), evaluated(tasks, None, 1, None, 1)
    told = change(before, after)
    assert list(told.cells.values()) == [(1.0, 1.0), (0.0, 1.0)]
    assert change(evaluated(tasks, 1, 1, None, None), after).passed.tasks == 1


def test_more_samples_of_the_same_tasks_are_not_more_tasks() -> None:
    once, often = pass_rate(run(1, 0, 1, 0)), pass_rate(run(1, 0, 1, 0, samples=50))
    assert (once.mean, once.low, once.high) == (often.mean, often.low, often.high)
    assert once.tasks == 4


def test_what_could_not_be_scored_is_counted_and_in_no_mean() -> None:
    rate = pass_rate(run(1, None, 0.9, 1))
    assert rate.mean == pytest.approx(2 / 3)
    assert (rate.tasks, rate.unscorable) == (3, 1)
    with pytest.raises(ValueError, match="No rollout was scored"):
        pass_rate(run(None))


def test_an_interval_narrows_with_tasks_and_holds_the_mean() -> None:
    few, many = pass_rate(run(*[1, 0] * 5)), pass_rate(run(*[1, 0] * 200))
    assert few.low < many.low < 0.5 < many.high < few.high
    assert many.high - many.low == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(400), rel=0.1)


def test_before_and_after_are_paired_by_task() -> None:
    told = change(run(0, 0, 1, None), run(1, 0, 1, 1, calls=2))
    assert told.passed.mean == pytest.approx(1 / 3)
    assert told.passed.tasks == 3
    assert told.passed.unscorable == 1
    assert (told.both_passed, told.tool_calls, told.tokens) == (1, (3.0, 2.0), (30.0, 20.0))
    assert told.cells["task-0"] == (0.0, 1.0)


def test_a_steady_change_has_an_interval_that_excludes_nothing_else() -> None:
    told = change(run(*[0] * 30), run(*[1] * 30))
    assert (told.passed.low, told.passed.high) == (1.0, 1.0)
    assert math.isnan(told.tool_calls[0])
    with pytest.raises(ValueError, match="both times"):
        change(run(1), [Sample("other", "pi", 1.0)])


def test_samples_are_told_apart_by_harness() -> None:
    assert {name: len(own) for name, own in by_harness([*run(1, 0), *run(1, harness="codex")]).items()} == {
        "pi": 2,
        "codex": 1,
    }
