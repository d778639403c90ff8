"""Every bundled task in the local sandbox through Harbor's own trial: its solution passes, doing nothing fails."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from harbor_env.sandboxes import environment_config
from harbor_env.tasks import Task, load_dataset

pytest.importorskip("harbor")
from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

from harbor_env.sandboxes.local import LocalEnvironment

AT_A_TIME = 4


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    try:
        LocalEnvironment.preflight()
    except SystemExit as refusal:
        pytest.skip(f"this machine forbids the local sandbox: {refusal}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for layers that starts empty, so that every task's environment is built here."""
    return str(tmp_path_factory.mktemp("cache"))


async def reward(task: Task, agent: str, trials: Path, cache: str) -> float | None:
    """What the verifier said after `agent`, `oracle` (runs the solution) or `nop` (does nothing)."""
    config = TrialConfig(
        task=TaskConfig(path=task.path),
        trial_name=f"{task.path.name}-{agent}",
        trials_dir=trials,
        agent=AgentConfig(name=agent),
        environment=environment_config("local", cache=cache),
    )
    result = await (await Trial.create(config)).run()
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result is not None
    return (result.verifier_result.rewards or {}).get("reward")


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("split", ["train", "heldout"])
async def test_in_the_sandbox_tasks_pass_with_their_solution_and_fail_untouched(
    split: str, level: int, tmp_path: Path, cache: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    tasks = [task for task in load_dataset(split=split) if task.level == level]
    turn = asyncio.Semaphore(AT_A_TIME)

    async def judged(task: Task) -> tuple[str, float | None, float | None]:
        async with turn:
            solved = await reward(task, "oracle", tmp_path, cache)
            return task.name, solved, await reward(task, "nop", tmp_path, cache)

    results = await asyncio.gather(*(judged(task) for task in tasks))
    assert results == [(task.name, 1.0, 0.0) for task in tasks]
