"""One number from what a verifier wrote, and never a guess."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from harbor_env.gateway.limits import Spent, budget_stop
from harbor_env.gateway.options import Budget
from harbor_env.outcome import Kind, Ran, judge
from harbor_env.reward import Selected, select_reward


def test_a_reward_called_reward_is_taken_among_several() -> None:
    assert select_reward({"format": 1.0, "reward": 0.25}) == Selected(0.25)


def test_an_only_reward_is_taken_whatever_its_name() -> None:
    assert select_reward({"accuracy": 1}) == Selected(1.0)


def test_a_zero_is_a_reward() -> None:
    assert select_reward({"reward": 0}) == Selected(0.0)


def test_several_rewards_without_one_called_reward_are_refused_with_their_names() -> None:
    selected = select_reward({"speed": 1.0, "accuracy": 0.0})
    assert selected.value is None
    assert "accuracy, speed" in selected.problem


def test_the_key_asked_for_wins_over_the_one_called_reward() -> None:
    assert select_reward({"reward": 0.0, "accuracy": 0.5}, "accuracy") == Selected(0.5)


def test_a_key_that_was_not_written_is_refused_with_those_that_were() -> None:
    assert select_reward({"reward": 1.0}, "accuracy") == Selected(
        None, "The verifier wrote no reward 'accuracy', only: reward."
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_refused(value: float) -> None:
    assert "not finite" in select_reward({"reward": value}).problem


@pytest.mark.parametrize("value", [True, "1.0", None])
def test_a_reward_that_is_not_a_number_is_refused(value: object) -> None:
    assert select_reward({"reward": value}) == Selected(None, "The reward 'reward' is not a number.")


@pytest.mark.parametrize("rewards", [None, {}])
def test_no_reward_is_none_with_a_reason_and_never_a_zero(rewards: dict[str, object] | None) -> None:
    assert select_reward(rewards) == Selected(None, "The verifier wrote no reward.")


def test_a_harness_that_ran_out_of_time_keeps_the_reward_its_work_earned_with_a_flag() -> None:
    outcome = judge(Ran("agent", "AgentTimeoutError", "timed out after 5 seconds"), Selected(0.8), turns=3, findings={})
    assert (outcome.ok, outcome.reward, outcome.flags) == (True, 0.8, ("timeout",))


def test_a_harness_that_exits_badly_after_real_turns_keeps_its_reward_with_a_flag() -> None:
    outcome = judge(Ran("agent", "NonZeroAgentExitCodeError", "exit 1"), Selected(0.0), turns=3, findings={})
    assert (outcome.ok, outcome.reward, outcome.flags) == (True, 0.0, ("agent_error",))


@pytest.mark.parametrize("limit", [one.name for one in fields(Budget)])
def test_a_spent_budget_is_flagged_beside_the_reward(limit: str) -> None:
    stop = budget_stop(Budget(**{limit: 1}), Spent(calls=1, tokens=1, seconds=1.0))
    assert stop is not None
    outcome = judge(Ran("verifier"), Selected(0.0), turns=3, findings={stop.finding.code: 2})
    assert (outcome.ok, outcome.flags) == (True, ("budget",))


@pytest.mark.parametrize(
    ("ran", "selected", "turns", "findings", "kind"),
    [
        (Ran("none", "ValueError", "no test.sh"), Selected(None, "none"), 0, {}, "task"),
        (Ran("sandbox", "SandboxError", "no namespaces"), Selected(None, "none"), 0, {}, "sandbox"),
        (Ran("setup", "AgentSetupTimeoutError", "slow"), Selected(None, "none"), 0, {}, "sandbox"),
        (Ran("agent", "SandboxLikelyOutOfMemoryError", "killed"), Selected(0.0), 4, {}, "sandbox"),
        (Ran("verifier"), Selected(0.0), 0, {}, "capture"),
        (Ran("verifier"), Selected(0.0), 0, {"engine_down": 3}, "engine"),
        (Ran("agent", "ApiOverloadedError", "503"), Selected(0.0), 2, {"engine_down": 3}, "engine"),
        (Ran("agent", "AgentTimeoutError", "late"), Selected(None, "none"), 2, {}, "timeout"),
        (Ran("agent", "RuntimeError", "crash"), Selected(None, "none"), 2, {}, "agent"),
        (Ran("verifier", "RewardFileNotFoundError", "none"), Selected(None, "none"), 2, {}, "verifier"),
        (Ran("verifier"), Selected(None, "several"), 2, {}, "verifier"),
    ],
)
def test_every_failure_has_its_kind_and_no_reward(
    ran: Ran, selected: Selected, turns: int, findings: dict[str, int], kind: Kind
) -> None:
    outcome = judge(ran, selected, turns, findings)
    assert outcome.reason is not None
    assert (outcome.ok, outcome.reward, outcome.reason.kind) == (False, None, kind)


def test_engine_failures_that_the_harness_survived_do_not_spoil_a_score() -> None:
    outcome = judge(Ran("verifier"), Selected(1.0), turns=4, findings={"rate_limited": 2})
    assert (outcome.ok, outcome.reward) == (True, 1.0)
