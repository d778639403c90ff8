"""What a training run lacks, or is given for nothing, is told before anything starts."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from harbor_env.errors import UsageError
from tests.fake_server import task_server
from tests.waiting import until
from trl_integration.config import TrainConfig
from trl_integration.preparation import (
    chosen_reward,
    given_agents,
    made,
    policy_sampling,
    refuse_unheeded,
    refuse_unknown,
    refuse_wrong_action,
    shared_tasks,
    tasks_of,
)
from trl_integration.rewards import STANDARD

WHOLE_POLICY = {"temperature": 0.8, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}


def config(**settings: Any) -> TrainConfig:
    return TrainConfig(model="m", servers=("http://127.0.0.1:9",), harnesses=("pi",), output_dir="out", **settings)


@pytest.mark.parametrize("reward", ["nowhere:reward", "math:nothing", "no reward at all", "math:pi"])
def test_a_reward_that_is_none_is_refused_by_its_name(reward: str) -> None:
    with pytest.raises(UsageError, match=f"reward: {reward}"):
        chosen_reward(config(reward=reward))


def test_without_a_reward_of_one_s_own_the_standard_one_is_taken() -> None:
    assert chosen_reward(config()) is STANDARD


@pytest.mark.parametrize("given", ["/nowhere/agents.yaml", {"pi": 3}])
def test_agent_kwargs_that_cannot_be_read_are_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"agents\.yaml cannot be read|agent_kwargs: give a mapping"):
        given_agents(config(agent_kwargs=given))


@pytest.mark.parametrize("changed", [{"min_p": 0.1}, {"repetition_penalty": 1.1}, {"top_p": 0.9}, {"temperature": 0.0}])
def test_sampling_from_less_than_the_policy_is_refused(changed: dict[str, float]) -> None:
    assert policy_sampling(SimpleNamespace(**WHOLE_POLICY)) == WHOLE_POLICY
    with pytest.raises(UsageError, match=next(iter(changed))):
        policy_sampling(SimpleNamespace(**{**WHOLE_POLICY, **changed}))


@dataclass
class FakeOptions:
    chat_template_kwargs: dict[str, Any] | None = None
    fork_threshold_tokens: int = 1024
    log_completions: bool = False
    max_tool_calling_iterations: int | None = None
    max_steps: int = 100
    num_generations: int = 8
    num_completions_to_print: int | None = None
    request_timeout: int = 600


@pytest.mark.parametrize(
    ("changed", "instead"),
    [({"log_completions": True}, "rollouts.jsonl"), ({"max_tool_calling_iterations": 3}, "budgets.max_calls")],
)
def test_an_option_that_has_no_effect_is_refused_with_what_has(changed: dict[str, Any], instead: str) -> None:
    refuse_unheeded(FakeOptions())
    with pytest.raises(UsageError, match=instead):
        refuse_unheeded(FakeOptions(**changed))


def test_an_option_that_does_not_exist_is_refused_by_its_name() -> None:
    refuse_unknown("training", {"request_timeout": 3}, FakeOptions)
    with pytest.raises(UsageError, match="training: FakeOptions has no steps"):
        refuse_unknown("training", {"steps": 3}, FakeOptions)


def test_a_group_of_one_which_is_never_trained_is_refused() -> None:
    with pytest.raises(UsageError, match="one rollout alone is never trained"):
        refuse_unheeded(FakeOptions(num_generations=1))


def test_a_run_that_only_epochs_would_end_is_refused() -> None:
    with pytest.raises(UsageError, match=r"training\.max_steps ends a run"):
        refuse_unheeded(FakeOptions(max_steps=-1))


@pytest.mark.parametrize("name", ["output_dir", "seed", "vllm_server_base_url", "logging_steps"])
def test_an_option_of_the_trainer_that_another_setting_gives_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"training\.{name} is not set there"):
        refuse_unknown("training", {name: 3}, FakeOptions)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *[({"action": {name: "pi"}}, rf"action\.{name} is not set there") for name in ("harness", "sandbox", "task")],
        ({"action": {"sampling": {"temperature": 2}}}, "training.temperature"),
        ({"action": {"purpose": "eval"}}, "a training run trains"),
        ({"action": {"agent_timeout": -1}}, "agent_timeout: Input should be greater than 0"),
        ({"action": {"waarm": True}}, "waarm: Extra inputs are not permitted"),
        ({"budgets": {"max_call": 3}}, "budgets.max_call: Extra inputs are not permitted"),
        ({"budgets": {"max_calls": "few"}}, "budgets.max_calls: Input should be a valid integer"),
    ],
)
def test_what_no_rollout_can_be_asked_for_is_refused_before_a_worker_fails_on_it(wrong: Any, said: str) -> None:
    refuse_wrong_action(config(action={"warm": True, "agent_timeout": 90}, budgets={"max_calls": 3}))
    with pytest.raises(UsageError, match=said):
        refuse_wrong_action(config(**wrong))


def test_options_that_their_own_class_refuses_are_a_sentence() -> None:
    assert made("lora", dict, r=4) == {"r": 4}
    with pytest.raises(UsageError, match=r"training: .*'steps'"):
        made("training", FakeOptions, steps=3)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


async def test_a_server_that_was_started_beside_the_trainer_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    asking = asyncio.create_task(tasks_of(f"http://127.0.0.1:{port}", "train"))
    told: list[str] = []

    def waiting() -> bool:
        told.append(capsys.readouterr().err)
        return bool(told[-1])

    await until(waiting)
    assert f"Waiting for the environment server at http://127.0.0.1:{port}" in told[-1]
    async with task_server({"num_tasks": 7}, port=port):
        assert await asking == 7


async def test_a_server_that_does_not_come_is_told_with_how_to_start_one() -> None:
    with pytest.raises(UsageError, match="start one with `openenv-harbor serve`"):
        await tasks_of(f"http://127.0.0.1:{free_port()}", "train", patience=0)


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [({"detail": "no split dev"}, 404, "no split dev"), ({"num_tasks": 0}, 200, "no tasks in the split 'dev'")],
)
async def test_a_split_without_tasks_is_refused_at_once(answer: dict[str, Any], status: int, said: str) -> None:
    async with task_server(answer, status) as url:
        with pytest.raises(UsageError, match=said):
            await tasks_of(url, "dev")


TASKS = (("sum", "Add."), ("count", "Count."))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (TASKS[:1], "{0} has 2 tasks, {1} has 1"),
        (TASKS[::-1], "task 0 is sum at {0}, and count at {1}"),
        ((TASKS[0], ("count", "Count twice.")), "task 1, count, says one thing at {0} and another at {1}"),
    ],
)
async def test_servers_with_other_tasks_than_the_first_are_refused_by_name(
    other: tuple[tuple[str, str], ...], said: str
) -> None:
    async with (
        task_server({"num_tasks": 2}, tasks=TASKS) as first,
        task_server({"num_tasks": 2}, tasks=TASKS) as same,
        task_server({"num_tasks": len(other)}, tasks=other) as third,
    ):
        assert await shared_tasks([first, same], "train") == 2
        with pytest.raises(UsageError, match=re.escape(said.format(first, third))):
            await shared_tasks([first, same, third], "train")


async def test_every_server_of_a_run_is_waited_for() -> None:
    async with task_server({"num_tasks": 2}, tasks=TASKS) as first:
        with pytest.raises(UsageError, match="start one with `openenv-harbor serve`"):
            await shared_tasks([first, f"http://127.0.0.1:{free_port()}"], "train", patience=0)
