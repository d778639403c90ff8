"""What a rollout earned, what is known of it, and what its group tells."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_env.models import HarborResult
from harbor_env.packing import pack
from trl_integration.groups import has_contrast
from trl_integration.metrics import audit, disagreeing, group_metrics, harness_metrics
from trl_integration.records import Ledger, Record, read_records, scored_from
from trl_integration.rewards import STANDARD, EfficiencyBonus, Reward, Scored, compose, correctness


def scored(correct: float, calls: int = 0, harness: str = "pi") -> Scored:
    return Scored(harness, correct, calls)


def record(correct: float | None, calls: int = 0, *, group: int = 0, harness: str = "pi", cause: str = "") -> Record:
    facts = None if correct is None else scored(correct, calls, harness)
    return Record(group, harness, scored=facts, reward=STANDARD(facts) if facts else None, cause=cause)


@pytest.mark.parametrize(("calls", "bonus"), [(0, 0.1), (4, 0.0789), (10, 0.06)])
def test_the_bonus_is_that_of_the_published_formula(calls: int, bonus: float) -> None:
    assert STANDARD(scored(1.0, calls)) == pytest.approx(1 + bonus, abs=5e-5)


@given(correct=st.floats(0, 0.999), calls=st.integers(0, 1000))
def test_a_wrong_answer_gets_no_bonus_however_few_its_calls(correct: float, calls: int) -> None:
    assert STANDARD(scored(correct, calls)) == correct


@given(calls=st.integers(0, 10_000))
def test_no_bonus_makes_a_wrong_answer_better_than_a_right_one(calls: int) -> None:
    assert STANDARD(scored(0.0)) < STANDARD(scored(1.0, calls + 1)) < STANDARD(scored(1.0, calls))


def steps(*calls: int) -> dict[str, Any]:
    """A harness's trajectory whose steps made so many calls each."""
    return {"steps": [{"source": "agent", "message": "m", "tool_calls": [{}] * count} for count in calls]}


@pytest.mark.parametrize(("trajectory", "counted"), [(steps(2, 1), 3), (steps(0, 0), 0), (None, 2)])
def test_tool_calls_are_those_the_harness_made_and_those_sampled_where_it_keeps_none(
    trajectory: dict[str, Any] | None, counted: int
) -> None:
    turn = {"trained": True, "reply": {"content": "", "tool_calls": [{}]}}
    result = HarborResult(
        id="r",
        task="t",
        harness="pi",
        sandbox="local",
        ok=True,
        reward=1.0,
        trace=pack(json.dumps({"turns": [turn, turn, turn | {"trained": False}]}).encode()),
        trajectory=pack(json.dumps(trajectory).encode()) if trajectory else "",
    )
    facts = scored_from(result)
    assert facts is not None
    assert facts.tool_calls == counted


def test_one_s_own_terms_are_weighed_and_travel_to_another_process() -> None:
    reward = compose(correctness, (EfficiencyBonus(at=0.5), 2.0))
    assert pickle.loads(pickle.dumps(reward))(scored(0.5, 0)) == pytest.approx(0.7)
    with pytest.raises(ValueError, match="at least one term"):
        compose()


def test_contrast_needs_two_different_rewards() -> None:
    assert has_contrast([1.0, None, 0.0])
    assert not has_contrast([1.0, None, 1.0])
    assert not has_contrast([1.0, None])


def test_the_audit_finds_a_wrong_reward_and_counts_the_groups_that_teach_little() -> None:
    records = [
        *(record(1.0, calls, group=0) for calls in (2, 3)),  # the bonus alone tells these apart
        *(record(1.0, 2, group=1) for _ in range(2)),
        record(1.0, 2, group=2),
        record(0.0, 2, group=2),
        record(None, group=2, cause="sandbox"),
    ]
    found = audit(records, STANDARD)
    assert (found.rollouts, found.unscorable, found.groups) == (7, 1, 3)
    assert (found.without_contrast, found.bonus_only, found.wrong) == (1, 1, ())
    forged = Record(3, "pi", scored=scored(0.0), reward=0.2)
    zeroed = Record(3, "pi", reward=0.0, cause="engine")
    wrong = audit([forged, zeroed], STANDARD).wrong
    assert ["reward 0.2" in wrong[0], "unscorable" in wrong[1]] == [True, True]


def test_what_is_logged_is_told_per_harness_and_an_unscorable_rollout_is_in_no_mean() -> None:
    records = [record(1.0, 4), record(0.0, 2), record(None, cause="sandbox"), record(1.0, 1, harness="codex")]
    values = harness_metrics(records, version=3)
    assert values["harness/pi/pass_rate"] == (1.0, 2.0)
    assert values["harness/pi/tool_calls"] == (6.0, 2.0)
    assert values["harness/pi/unscorable_sandbox_total"] == 1.0
    assert values["harness/pi/scored"] == (2.0, 3.0)
    assert values["harness/pi/staleness"] == (9.0, 3.0)
    assert values["harness/codex/rollouts_total"] == 1.0
    assert group_metrics([record(1.0, 1), record(None)])["groups/too_few_scored_total"] == 1.0


def test_a_group_tells_of_its_contrast_for_its_harness_as_well() -> None:
    told = group_metrics([record(1.0, calls, harness="codex") for calls in (2, 3)])
    for place in ("groups", "harness/codex"):
        assert told[f"{place}/without_contrast"] == (0.0, 1.0)
        assert told[f"{place}/contrast_by_bonus_only"] == (1.0, 1.0)
    assert group_metrics([record(0.0)])["harness/pi/without_contrast"] == (1.0, 1.0)


@pytest.mark.parametrize(
    ("used", "wrong"),
    [
        ([1.0, None, 0.0, 0.0], 0),
        ([0.0, 1.0, 0.0, None], 0),  # the trainer has them in an order of its own
        ([1.0, 0.0, 0.0, 0.0], 1),  # what could not be scored became a zero
        ([1.0, 0.0, None, None], 1),  # a score was lost
        ([1.0, None, 1.0, 0.0], 1),
        ([0.5, 0.5, 0.5, None], 3),
        ([], 3),
    ],
)
def test_rewards_that_are_trained_but_stand_in_no_record_are_counted(used: list[float | None], wrong: int) -> None:
    records = [Record(0, "pi", reward=reward) for reward in (0.0, 1.0, None, 0.0)]
    assert disagreeing(used, records) == wrong


def test_a_mean_over_nothing_is_not_logged() -> None:
    values = harness_metrics([record(None, cause="engine")], version=1)
    assert values["harness/pi/scored"] == (0.0, 1.0)
    assert "harness/pi/reward" not in values


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    records = [record(1.0, 4), record(None, cause="sandbox")]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in records))
    assert read_records(path) == records


def test_a_ledger_gives_a_group_s_records_once_and_says_why_some_could_not_be_scored() -> None:
    ledger = Ledger()
    for one in (record(None, cause="engine"), record(0.0), record(0.0, group=1)):
        ledger.add(one)
    assert "engine" in ledger.latest_causes()
    assert len(ledger.take(0)) == 2
    assert ledger.take(0) == []


def raising(scored: Scored) -> float:
    raise KeyError("bonus")


def nothing(scored: Scored) -> float:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("reward", "by", "said"),
    [
        (math.nan, STANDARD, "reward nan, but"),
        (1.1, lambda scored: math.nan, "formula says nan"),
        (1.1, raising, "formula says KeyError"),
        (1.1, nothing, "formula says TypeError"),
    ],
)
def test_the_audit_finds_a_reward_or_a_formula_that_is_no_number(reward: float, by: Reward, said: str) -> None:
    (problem,) = audit([Record(0, "pi", scored=Scored("pi", 1.0, 0), reward=reward)], by).wrong
    assert said in problem
