"""How a batch stands: means over what was scored, intervals, groups, and the time that is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harbor_env.outcome import Kind, Reason, RolloutResult
from harbor_env.tally import by_harness, groups, interval, seconds_left, standing

ONE = RolloutResult(
    *("r", "t", "h", "local"), ok=True, reward=1.0, counts={"turns": 3, "rows": 1, "sampled_tokens": 10}
)


def failed(kind: Kind) -> RolloutResult:
    return replace(ONE, ok=False, reward=None, reason=Reason(kind, ""), counts={})


def test_what_could_not_be_scored_is_in_no_mean() -> None:
    now = standing([ONE, replace(ONE, reward=0.5), failed("engine"), failed("engine"), failed("sandbox")])
    assert (now.n, now.scored, now.passed, now.mean, now.rate) == (5, 2, 1, 0.75, 0.5)
    assert (now.turns, now.rows, now.tokens) == (6, 2, 20)
    assert now.unscorable == {"engine": 2, "sandbox": 1}


def test_nothing_scored_has_no_mean_and_no_rate() -> None:
    now = standing([failed("task")])
    assert (now.mean, now.rate) == (None, None)


@pytest.mark.parametrize(
    ("passed", "scored", "low", "high"),
    [(0, 0, 0, 1), (0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (5, 10, 0.2366, 0.7634), (1, 1, 0.2065, 1)],
)
def test_the_interval_is_wilson_s(passed: int, scored: int, low: float, high: float) -> None:
    assert interval(passed, scored) == pytest.approx((low, high), abs=1e-4)


def test_harnesses_come_in_order_of_their_names() -> None:
    assert list(by_harness([ONE, replace(ONE, harness="a")])) == ["a", "h"]


def test_a_group_is_the_scored_attempts_of_one_task_by_one_harness() -> None:
    mixed = [ONE, replace(ONE, reward=0.0)]
    same = [replace(ONE, task="u", reward=0.0)] * 3
    single = [replace(ONE, harness="other"), failed("engine")]
    assert groups([*mixed, *same, *single]) == (2, 1, 1)


def test_the_time_left_follows_the_pace_so_far() -> None:
    assert seconds_left(2, 6, 10.0) == 20.0
    assert seconds_left(0, 6, 10.0) is None
