"""The harness's own trajectory beside the capture."""

from __future__ import annotations

from typing import Any

import pytest

from harbor_env.atif import CapturedCall, compare, count_tool_calls


def step(*calls: tuple[str, str], **extra: Any) -> dict[str, Any]:
    tool_calls = [{"tool_call_id": id, "function_name": name, "arguments": {}} for id, name in calls]
    return {"source": "agent", "message": "", "tool_calls": tool_calls, **extra}


def trajectory(*steps: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"steps": [{"source": "user", "message": "do it"}, *steps], **extra}


CAPTURED = (CapturedCall("call_1", "bash"), CapturedCall("call_2", "bash"))


def test_the_same_calls_match() -> None:
    assert compare(trajectory(step(("call_1", "bash")), step(("call_2", "bash"))), CAPTURED, 2).status == "match"


def test_no_trajectory_is_none() -> None:
    assert compare(None, CAPTURED, 2).status == "none"


def test_a_call_no_turn_sampled_went_around_the_gateway() -> None:
    check = compare(trajectory(step(("call_1", "bash"), ("call_2", "bash"), ("other", "bash"))), CAPTURED, 2)
    assert (check.status, check.detail) == ("differ", "1 tool calls not captured (other)")


def test_a_sampled_call_the_harness_never_ran_is_named() -> None:
    check = compare(trajectory(step(("call_1", "bash"))), CAPTURED, 2)
    assert (check.status, check.detail) == ("differ", "1 tool calls not in the trajectory (call_2)")


def test_without_ids_on_the_wire_calls_are_matched_by_name_and_number() -> None:
    captured = (CapturedCall("", "bash"), CapturedCall("", "read"))
    assert compare(trajectory(step(("a", "read"), ("b", "bash"))), captured, 1).status == "match"
    assert compare(trajectory(step(("a", "read"), ("b", "read"))), captured, 1).status == "differ"


def test_more_agent_steps_than_turns_differ() -> None:
    assert compare(trajectory(step(), step(), step()), (), 2).detail == "3 agent steps, 2 turns captured"


def test_copied_context_and_steps_without_a_model_do_not_count() -> None:
    steps = (step(), step(is_copied_context=True), step(llm_call_count=0))
    assert compare(trajectory(*steps), (), 1).status == "match"


def test_a_step_whose_model_call_failed_does_not_count() -> None:
    failed = step(metrics={"prompt_tokens": 0, "completion_tokens": 0})
    assert compare(trajectory(step(), failed, failed, step()), (), 2).status == "match"
    said = {**failed, "message": "from somewhere else"}
    assert compare(trajectory(step(), said), (), 1).status == "differ"


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_call_of_a_discarded_reply_may_be_in_the_trajectory_or_not(with_ids: bool) -> None:
    names = ("call_1", "call_2") if with_ids else ("", "")
    captured = (CapturedCall(names[0], "bash", discarded=True), CapturedCall(names[1], "bash"))
    kept = trajectory(step(("call_1", "bash")), step(("call_2", "bash")))
    assert compare(kept, captured, 2).status == "match"
    assert compare(trajectory(step(("call_2", "bash"))), captured, 2).status == "match"
    assert compare(trajectory(step(("call_1", "read"))), captured, 2).status == "differ"


def test_subagents_count() -> None:
    inner = {"steps": [step(("call_2", "bash"))]}
    outer = trajectory(step(("call_1", "bash")), subagent_trajectories=[inner])
    assert compare(outer, CAPTURED, 2).status == "match"


def test_a_harness_that_keeps_calls_out_of_its_steps_matches_by_steps() -> None:
    assert compare(trajectory(step(), step()), CAPTURED, 2).status == "match"


def test_a_harness_s_own_count_is_its_steps_calls_and_its_subagents() -> None:
    steps = trajectory(step(("a", "read"), ("b", "bash")), step())
    assert count_tool_calls(steps) == 2
    assert count_tool_calls({**steps, "subagent_trajectories": [trajectory(step(("c", "bash")))]}) == 3
    assert count_tool_calls(None) is None


def test_a_turn_s_parallel_calls_may_be_a_step_each_and_a_step_nothing_sampled_is_still_one_too_many() -> None:
    together = tuple(CapturedCall(id, "bash", turn="t1") for id in ("call_1", "call_2"))
    steps = [step(("call_1", "bash")), step(("call_2", "bash")), step()]
    assert compare(trajectory(*steps), together, 2).status == "match"
    assert compare(trajectory(*steps, step()), together, 2).detail == "3 agent steps, 2 turns captured"
