"""What a training run needs before it starts, looked for and checked.

Invariant: what is missing or means nothing is a UsageError whose sentence says what to do.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from openenv.core.harness.capture.upstream import training_sampling
from pydantic import ValidationError

from harbor_env.agent_kwargs import AgentKwargs, checked, read_agent_kwargs
from harbor_env.client import HarborEnv
from harbor_env.errors import UsageError
from harbor_env.lookup import import_object
from harbor_env.models import HarborAction, TaskRef
from harbor_env.outcome import one_line
from trl_integration.config import TrainConfig
from trl_integration.rewards import STANDARD, Reward, compose, correctness

PATIENCE = 120.0
"""Seconds in which an environment server that was started beside the trainer is to answer."""
POLL = 1.0

UNHEEDED = {
    "chat_template_kwargs": "action.template_kwargs is given to the template",
    "fork_threshold_tokens": "a rewritten history always begins another row",
    "log_completions": "OUTPUT/rollouts.jsonl has every rollout",
    "max_tool_calling_iterations": "budgets.max_calls bounds a rollout's calls",
    "num_completions_to_print": "OUTPUT/rollouts.jsonl has every rollout",
    "request_timeout": "action.agent_timeout bounds a harness's run",
}
"""Options of TRL's own rollouts, which a harness's do not heed, and what there is in their place."""

ELSEWHERE = {
    "training": {
        "logging_steps": "every step is logged",
        "output_dir": "output_dir",
        "seed": "seed",
        "vllm_server_base_url": "engine_url",
    },
    "action": {
        "agent_kwargs": "agent_kwargs, by harness",
        "budgets": "budgets",
        "engine": "engine, engine_url and served_model",
        "harness": "harnesses",
        "purpose": "a training run trains",
        "sampling": "training.temperature and training.max_completion_length",
        "sandbox": "sandbox",
        "split": "split",
        "task": "a group's task follows from its number",
    },
}
"""Options that follow from other settings, by group, and from which."""


def chosen_reward(config: TrainConfig) -> Reward:
    if not config.reward:
        return STANDARD if config.bonus else compose(correctness)
    try:
        reward = import_object(config.reward)
    except ImportError as error:
        raise UsageError(f"reward: {config.reward} cannot be imported: {error}.") from None
    if not callable(reward):
        raise UsageError(f"reward: {config.reward} is no function of a rollout's score.")
    found: Reward = reward
    return found


def given_agents(config: TrainConfig) -> AgentKwargs:
    given = config.agent_kwargs
    return read_agent_kwargs(Path(given)) if isinstance(given, str) and given else checked(given or {}, "agent_kwargs")


def refuse_unknown(group: str, given: Mapping[str, Any], options: type[Any]) -> None:
    """`options` is the dataclass whose fields may be given."""
    refuse_set_elsewhere(group, given)
    unknown = sorted(set(given) - {field.name for field in dataclasses.fields(options)})
    if unknown:
        raise UsageError(f"{group}: {options.__name__} has no {', '.join(unknown)}.")


def refuse_set_elsewhere(group: str, given: Mapping[str, Any]) -> None:
    for name, instead in ELSEWHERE.get(group, {}).items():
        if name in given:
            raise UsageError(f"{group}.{name} is not set there ({instead}). Leave it out.")


def refuse_wrong_action(config: TrainConfig) -> None:
    """What a rollout is asked for is made in the worker's process, where nobody would be told what is wrong with it."""
    refuse_set_elsewhere("action", config.action)
    try:
        HarborAction(budgets=dict(config.budgets), sandbox=config.sandbox, **config.action)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise UsageError(f"budgets or action: {one_line(wrong)}.") from None


def made(group: str, options: Callable[..., Any], **given: Any) -> Any:
    """`options(**given)`; its own refusal, whatever it is, as a UsageError."""
    try:
        return options(**given)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{group}: {one_line(str(error))}") from error


def adapter(options: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """`options` is PEFT's `LoraConfig`, which takes any rank until layers are made of it."""
    found = made("lora", options, **{"task_type": "CAUSAL_LM", **given})
    if not isinstance(found.r, int) or found.r < 1:
        raise UsageError(f"lora: r is {found.r!r}, and a rank is a whole number from 1")
    return found


def refuse_unheeded(args: Any) -> None:
    """`args` is TRL's `AsyncGRPOConfig`."""
    defaults = {field.name: field.default for field in dataclasses.fields(args)}
    for name, instead in UNHEEDED.items():
        if getattr(args, name) != defaults[name]:
            raise UsageError(f"training.{name} has no effect on rollouts in a harness: {instead}. Leave it out.")
    if not isinstance(args.max_steps, int) or args.max_steps < 1:
        raise UsageError(
            "training.max_steps ends a run: give a number of steps. num_train_epochs would count the groups that are "
            "trained, and after --resume others as well."
        )
    if args.num_generations < 2:
        raise UsageError(
            "training.num_generations is the size of a group, and one rollout alone is never trained: give 2."
        )


def policy_sampling(args: Any) -> dict[str, Any]:
    """The sampling options of TRL's `AsyncGRPOConfig`, as its worker takes them."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    sampling = {name: getattr(args, name) for name in names}
    try:
        training_sampling({name: value for name, value in sampling.items() if value is not None})
    except ValueError as error:
        raise UsageError(f"training: {error}: rollouts are sampled from the whole policy.") from None
    return sampling


async def tasks_of(server: str, split: str, admin_key: str = "", patience: float = PATIENCE) -> int:
    """How many tasks the split has, once the server answers, for which it has `patience` seconds."""
    env, deadline, told = HarborEnv(server, admin_key=admin_key), time.monotonic() + patience, False
    while True:
        try:
            tasks = await env.num_tasks(split)
        except (OSError, aiohttp.ClientError) as error:
            if time.monotonic() > deadline:
                raise UsageError(
                    f"No environment server answers at {server} ({error}): start one with `openenv-harbor serve`."
                ) from None
        except (RuntimeError, ValueError) as error:
            raise UsageError(f"The environment server at {server} does not tell its tasks: {error}") from None
        else:
            break
        if not told:
            print(f"Waiting for the environment server at {server}.", file=sys.stderr, flush=True)
            told = True
        await asyncio.sleep(POLL)
    if tasks < 1:
        raise UsageError(f"The environment server at {server} has no tasks in the split {split!r}.")
    return tasks


async def shared_tasks(servers: Sequence[str], split: str, admin_key: str = "", patience: float = PATIENCE) -> int:
    """How many tasks the split has on each of the servers, once all of them answer.

    UsageError: one has others, or in another order. A group's rollouts go to any server, and run the task at one place.
    """
    counts = await asyncio.gather(*(tasks_of(server, split, admin_key, patience) for server in servers))
    if len(servers) > 1:
        told = await asyncio.gather(*(_told(server, split, admin_key) for server in servers))
        for server, tasks in zip(servers[1:], told[1:], strict=True):
            if difference := _difference((servers[0], told[0]), (server, tasks)):
                raise UsageError(f"The split {split!r} differs: {difference}. Serve one dataset on all of them.")
    return counts[0]


async def _told(server: str, split: str, admin_key: str) -> list[TaskRef]:
    try:
        return await HarborEnv(server, admin_key=admin_key).tasks(split)
    except (OSError, aiohttp.ClientError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"The environment server at {server} does not tell its tasks: {one_line(str(error))}"
        ) from None


def _difference(one: tuple[str, Sequence[TaskRef]], other: tuple[str, Sequence[TaskRef]]) -> str:
    """The first difference of two servers' tasks, empty where there is none."""
    (here, ours), (there, theirs) = one, other
    if len(ours) != len(theirs):
        return f"{here} has {len(ours)} tasks, {there} has {len(theirs)}"
    for index, (mine, yours) in enumerate(zip(ours, theirs, strict=True)):
        if mine.name != yours.name:
            return f"task {index} is {mine.name} at {here}, and {yours.name} at {there}"
        if mine.instruction != yours.instruction:
            return f"task {index}, {mine.name}, says one thing at {here} and another at {there}"
    return ""
