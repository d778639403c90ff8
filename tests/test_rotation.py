"""Which harness a group runs in, and on which task."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_integration.rotation import RoundRobin, Schedule, Shuffled, Weighted, rotation

NAMES = ("mini-swe-agent", "pi", "codex", "claude-code")


@given(tasks=st.integers(1, 40), count=st.integers(1, 4), start=st.integers(0, 500))
def test_taking_turns_lets_every_task_meet_every_harness(tasks: int, count: int, start: int) -> None:
    turns = RoundRobin(NAMES[:count], tasks)
    met = {(group % tasks, turns(group)) for group in range(start * tasks, (start + count) * tasks)}
    assert len(met) == tasks * count


@given(tasks=st.integers(1, 40), count=st.integers(1, 4), seed=st.integers(0, 9))
def test_a_shuffle_visits_every_task_in_each_pass_and_every_task_still_meets_every_harness(
    tasks: int, count: int, seed: int
) -> None:
    turns, order = RoundRobin(NAMES[:count], tasks), Shuffled(tasks, seed)
    assert sorted(map(order, range(tasks))) == list(range(tasks))
    assert len({(order(group), turns(group)) for group in range(tasks * count)}) == tasks * count


def test_a_shuffle_mixes_what_stands_together_and_is_the_same_in_another_process() -> None:
    order = Shuffled(480, seed=3)
    families = {order(group) // 60 for group in range(24)}
    assert len(families) > 5
    assert [pickle.loads(pickle.dumps(order))(group) for group in range(480)] == list(map(order, range(480)))
    assert list(map(order, range(480))) != list(map(Shuffled(480, seed=4), range(480)))


@given(count=st.integers(1, 4), groups=st.integers(0, 400))
def test_taking_turns_is_even(count: int, groups: int) -> None:
    seen = Counter(map(RoundRobin(NAMES[:count]), range(groups)))
    assert max(seen.values(), default=0) - min((seen[name] for name in NAMES[:count]), default=0) <= 1


def test_odds_are_kept_and_the_same_group_draws_the_same_harness() -> None:
    drawn = Weighted(NAMES[:3], (3.0, 1.0, 0.0), seed=5)
    seen = Counter(map(drawn, range(4000)))
    assert seen["mini-swe-agent"] == pytest.approx(3000, rel=0.05)
    assert seen["codex"] == 0
    again = pickle.loads(pickle.dumps(drawn))
    assert [drawn(group) for group in range(50)] == [again(group) for group in range(50)]
    assert [Weighted(NAMES[:2], (1, 1), seed=6)(group) for group in range(50)] != [
        Weighted(NAMES[:2], (1, 1), seed=5)(group) for group in range(50)
    ]


def test_a_schedule_goes_from_one_rotation_to_the_next() -> None:
    plan = Schedule(((0, RoundRobin(("pi",))), (10, RoundRobin(("pi", "codex")))))
    assert [plan(9), plan(10), plan(11)] == ["pi", "pi", "codex"]
    assert plan.harnesses == ("pi", "codex")


def test_a_group_without_a_number_is_the_first() -> None:
    assert RoundRobin(NAMES)(None) == NAMES[0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RoundRobin(()), "at least one harness"),
        (lambda: RoundRobin(("pi", "pi")), "named twice"),
        (lambda: Weighted((), ()), "at least one harness"),
        (lambda: Weighted(("pi",), (1.0, 2.0)), "1 harnesses need as many weights, not 2"),
        (lambda: Weighted(("pi",), (0.0,)), "one at least positive"),
        (lambda: Weighted(("pi",), (float("nan"),)), "Weights are finite"),
        (lambda: Weighted(("pi",), (float("inf"),)), "Weights are finite"),
        (lambda: Weighted(("pi", "codex"), (-1.0, 2.0)), "none negative"),
        (lambda: Schedule(()), "begin at group 0"),
        (lambda: Schedule(((3, RoundRobin(("pi",))),)), "begin at group 0"),
        (lambda: Schedule(((0, RoundRobin(("pi",))), (0, RoundRobin(("codex",))))), "and rise"),
        (lambda: Shuffled(0), "no task to shuffle"),
    ],
)
def test_what_is_no_rotation_is_refused_with_what_is_wrong_about_it(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_a_list_takes_turns_and_a_mapping_is_drawn_from() -> None:
    assert rotation(["pi", "codex"], tasks=7) == RoundRobin(("pi", "codex"), 7)
    assert rotation({"pi": 2, "codex": 1}, seed=3) == Weighted(("pi", "codex"), (2.0, 1.0), 3)
