"""Harbor's own Trial, unmodified, on the local sandbox."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harbor_env.errors import SandboxError, TaskError, UsageError
from harbor_env.sandboxes import LOCAL, SANDBOXES, environment_config
from tests.sandbox_world import CACHE, environment, make_environment, needs_sandbox, until, write_tree

TASK = {
    "task.toml": '[task]\nname = "org/copy"\n[environment]\nworkdir = "/app"\n[agent]\nnetwork_mode = "no-network"\n'
    '[verifier]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Copy in to out.\n",
    "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\nCOPY in /app/in\n",
    "environment/in": "text\n",
    "solution/solve.sh": "cp /app/in /app/out\n",
    "tests/test.sh": "r=0; cmp /app/in /app/out && r=1; echo $r > /logs/verifier/reward.txt\n",
}


async def _trial(task: Path, trials: Path, agent: str, name: str) -> Any:
    from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    config = TrialConfig(
        task=TaskConfig(path=task),
        trial_name=name,
        trials_dir=trials,
        agent=AgentConfig(name=agent),
        environment=environment_config("local", gateway="127.0.0.1:9", cache=CACHE),
    )
    return await Trial.create(config)


async def _run(task: Path, trials: Path, agent: str, name: str) -> Any:
    return await (await _trial(task, trials, agent, name)).run()


@needs_sandbox
async def test_the_oracle_solves_and_a_nop_does_not_several_at_once(tmp_path: Path) -> None:
    task = write_tree(tmp_path / "task", TASK)
    agents = ["oracle", "nop", "oracle", "nop"]
    results = await asyncio.gather(
        *(_run(task, tmp_path / "trials", agent, f"t{number}") for number, agent in enumerate(agents))
    )
    assert [result.exception_info for result in results] == [None] * 4
    assert [result.verifier_result.rewards for result in results] == [{"reward": 1.0}, {"reward": 0.0}] * 2


@needs_sandbox
async def test_a_trial_that_is_cancelled_leaves_no_sandbox(tmp_path: Path) -> None:
    from harbor.trial.hooks import TrialEvent

    task = write_tree(tmp_path / "task", {**TASK, "solution/solve.sh": "sleep 300\n"})
    trial = await _trial(task, tmp_path / "trials", "oracle", "slow")
    agent_started = asyncio.Event()

    async def hear(event: object) -> None:
        agent_started.set()

    trial.add_hook(TrialEvent.AGENT_START, hear)
    running = asyncio.create_task(trial.run())
    await agent_started.wait()
    folder = trial.agent_environment.sandbox.folder
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not folder.exists())


@needs_sandbox
async def test_a_sandbox_failure_is_in_the_result(tmp_path: Path) -> None:
    task = write_tree(tmp_path / "task", {**TASK, "environment/Dockerfile": "FROM x\nRUN exit 7\n"})
    result = await _run(task, tmp_path / "trials", "oracle", "broken")
    assert result.exception_info.exception_type == "SandboxError"
    assert "line 2: RUN failed with exit code 7" in result.exception_info.exception_message


def test_what_needs_docker_is_refused_before_anything_starts(tmp_path: Path) -> None:
    write_tree(tmp_path / "environment", {"docker-compose.yaml": "services: {}\n"})
    with pytest.raises(TaskError, match="Docker Compose, which the local sandbox has not; use --sandbox docker"):
        make_environment(tmp_path)
    with pytest.raises(TaskError, match="has no Dockerfile and the task names no docker_image"):
        make_environment(tmp_path / "other", dockerfile=None)


@needs_sandbox
async def test_a_task_with_only_an_image_gets_its_files_uploaded(tmp_path: Path) -> None:
    write_tree(tmp_path / "environment", {"given.txt": "given"})
    task = {"docker_image": "python:3.12", "workdir": "/work"}
    async with environment(tmp_path, dockerfile=None, task=task) as env:
        assert (await env.exec("pwd; cat given.txt")).stdout == "/work\ngiven"


@needs_sandbox
async def test_environment_variables_add_up_and_the_last_wins(tmp_path: Path) -> None:
    task = {"env": {"A": "task", "B": "task"}}
    async with environment(tmp_path, "FROM x\nENV A=file B=file C=file D=file\n", task=task) as env:
        with env.scoped_exec_env({"D": "scope"}):
            done = await env.exec("echo $A $B $C $D", env={"B": "exec", "D": "exec"})
    assert done.stdout == "task exec file scope\n"


@needs_sandbox
async def test_a_timeout_is_worded_as_harbor_words_it(tmp_path: Path) -> None:
    async with environment(tmp_path) as env:
        with pytest.raises(RuntimeError, match="Command timed out after 1 seconds"):
            await env.exec("sleep 300", timeout_sec=1)


@needs_sandbox
async def test_limits_of_the_task_are_applied_and_the_rest_is_noted(tmp_path: Path) -> None:
    async with environment(tmp_path, task={"storage_mb": 100, "memory_mb": 64, "cpus": 1}) as env:
        done = await env.exec("python3 -c 'bytearray(300 << 20)'")
        assert done.return_code != 0
        assert "storage_mb is not enforced" in env.notes


@needs_sandbox
async def test_mounts_of_the_trial_are_bound(tmp_path: Path) -> None:
    write_tree(tmp_path / "shared", {"f": "x"})
    mounts = [{"type": "bind", "source": str(tmp_path / "shared"), "target": "/shared", "read_only": True}]
    async with environment(tmp_path, mounts=mounts) as env:
        assert (await env.exec("cat /shared/f; touch /shared/g || echo no")).stdout == "xno\n"


async def test_a_sandbox_that_was_not_started_says_so(tmp_path: Path) -> None:
    env = make_environment(tmp_path)
    with pytest.raises(SandboxError, match="has not been started"):
        await env.exec("true")
    await env.stop(delete=True)


def test_every_backend_of_harbor_s_is_a_sandbox_by_name() -> None:
    from harbor.models.environment_type import EnvironmentType

    assert {kind.value for kind in EnvironmentType} == set(SANDBOXES) - {"local"}


def test_a_sandbox_s_name_becomes_harbor_s_configuration() -> None:
    local = environment_config("local", gateway="http://127.0.0.1:1", layers=[Path("/l")], override_memory_mb=5, x=1)
    assert (local.import_path, local.override_memory_mb) == (LOCAL, 5)
    assert local.kwargs == {"gateway": "http://127.0.0.1:1", "layers": ["/l"], "x": 1}
    docker = environment_config("docker", gateway="http://127.0.0.1:1", env={"A": "1"})
    assert (docker.type, docker.kwargs, docker.env) == ("docker", {}, {"A": "1"})
    assert environment_config("mine.module:Class").import_path == "mine.module:Class"
    with pytest.raises(UsageError, match=r"no sandbox 'dcoker'\. Choose one of: local, .*docker"):
        environment_config("dcoker")


def test_importing_the_table_imports_neither_harbor_nor_the_local_sandbox() -> None:
    import subprocess
    import sys

    code = "import sys, harbor_env.sandboxes; print(*(m for m in sys.modules if m.startswith('harbor')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"harbor_env", "harbor_env.errors", "harbor_env.sandboxes"}
