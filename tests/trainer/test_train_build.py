"""What a run's file makes of trainer and worker, before anything starts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harbor_env.errors import UsageError
from scripts.train import LogFile, build, free_engine, place
from tests.fake_server import task_server
from tests.trainer.fake_vllm import BASE, FakeVllm
from tests.trainer.loops import loop_of
from tests.trainer.world import tiny_model
from trl_integration.config import build as settings

LORA = {"r": 4, "target_modules": ["q_proj", "v_proj"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("trained") / "model")


def run_of(model: Path, engine: str, server: str, output: Path, /, **given: Any) -> Any:
    own = {"model": str(model), "servers": server, "harnesses": "pi", "output_dir": str(output), "engine_url": engine}
    training = {"max_steps": 1, **given.pop("training", {})}
    return settings({**own, "lora": LORA, "training": training, **given})


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("served", "given", "expected"),
    [
        (True, {}, "trl-policy"),
        (False, {}, None),
        (True, {"lora": {**LORA, "use_dora": True}}, None),
        (True, {"weight_folder": "weights"}, None),
    ],
)
async def test_the_worker_asks_for_adapters_only_where_the_trainer_sends_them(
    model: Path, tmp_path: Path, served: bool, given: dict[str, Any], expected: str | None
) -> None:
    async with FakeVllm(model, str, lora=served).served() as engine, task_server({"num_tasks": 5}) as server:
        config = run_of(model, engine.url, server, tmp_path, **given)
        trainer = await asyncio.to_thread(build, config)
    assert trainer.rollout_worker._loop_kwargs["lora_name"] == expected


@pytest.mark.filterwarnings("default")
async def test_a_worker_gives_a_server_up_before_the_trainer_gives_up_the_worker(model: Path, tmp_path: Path) -> None:
    async with FakeVllm(model, str).served() as engine, task_server({"num_tasks": 5}) as server:
        config = run_of(model, engine.url, server, tmp_path, training={"heartbeat_stale_after_s": 40})
        trainer = await asyncio.to_thread(build, config)
    assert trainer.rollout_worker._loop_kwargs["harness_session_factory"].keywords["patience"] < 40


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("training", "limit"), [({"max_completion_length": 120, "temperature": 0.7}, 120), ({}, 2048)])
async def test_what_a_file_says_of_sampling_arrives_at_the_environment_server(
    model: Path, tmp_path: Path, training: dict[str, Any], limit: int
) -> None:
    actions: list[dict[str, Any]] = []
    async with FakeVllm(model, str).served() as engine, task_server({"num_tasks": 5}, actions=actions) as server:
        trainer = await asyncio.to_thread(build, run_of(model, engine.url, server, tmp_path, training=training))
        await asyncio.to_thread(one_rollout, trainer.rollout_worker._loop_kwargs)
    (action,) = actions
    assert action["sampling"]["max_tokens"] == limit
    assert action["sampling"]["temperature"] == training.get("temperature", 1.0)


def one_rollout(given: dict[str, Any]) -> None:
    """Run one as the worker's process does with what the trainer's gave it."""
    with loop_of(given) as loop:
        session = loop._sessions.create(None, 0)
        session.wait_for_completion()
        session.close()


@pytest.mark.filterwarnings("default")
async def test_a_run_asks_every_server_for_its_tasks(model: Path, tmp_path: Path) -> None:
    async with task_server({"num_tasks": 5}) as first, task_server({"num_tasks": 5}, tasks=[("t", "")]) as second:
        with pytest.raises(UsageError, match=f"{first} has 0 tasks, {second} has 1"):
            await asyncio.to_thread(
                build, run_of(model, "http://127.0.0.1:9", first, tmp_path, servers=[first, second])
            )


@pytest.mark.filterwarnings("default")
async def test_a_run_that_goes_on_finds_no_adapters_of_an_earlier_one_loaded(model: Path, tmp_path: Path) -> None:
    fake = FakeVllm(model, str)
    fake.serving |= {"trl-policy-v3", "trl-policy-v4", "mine"}
    async with fake.served() as engine, task_server({"num_tasks": 5}) as server:
        trainer = await asyncio.to_thread(build, run_of(model, engine.url, server, tmp_path))
        await asyncio.to_thread(free_engine, trainer)
    assert fake.serving == {BASE, "mine"}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"training": {"log_completions": True}}, "log_completions"),
        ({"training": {"min_p": 0.1}}, "min_p"),
        ({"training": {"steps": 1}}, "steps"),
        ({"training": {"max_steps": "many"}}, "max_steps ends a run"),
        ({"training": {"save_strategy": "never"}}, "training: never is not a valid"),
        ({"training": {"num_generations": 1}}, "one rollout alone"),
        ({"training": {"max_steps": -1, "num_train_epochs": 2}}, "max_steps ends a run"),
        ({"lora": {"r": 0}}, "lora: "),
        ({"lora": {"r": "x"}}, "lora: "),
        ({"action": {"waarm": True}}, "waarm"),
        ({"model": "/nowhere"}, "model: "),
        *[({"action": {"sampling": {name: 1}}}, "max_completion_length") for name in ("max_tokens", "temperature")],
    ],
)
async def test_settings_that_rollouts_would_not_heed_are_refused(
    model: Path, tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    async with task_server({"num_tasks": 5}) as server:
        with pytest.raises(UsageError, match=said):
            await asyncio.to_thread(build, run_of(model, "http://127.0.0.1:9", server, tmp_path, **wrong))


@pytest.mark.parametrize(("first", "lines"), [(True, [{"step": 3, "loss": 0.5}]), (False, [])])
def test_of_several_processes_the_first_one_logs(tmp_path: Path, first: bool, lines: list[dict[str, Any]]) -> None:
    path = tmp_path / "log.jsonl"
    path.touch()
    state = SimpleNamespace(global_step=3, is_world_process_zero=first)
    LogFile(path).on_log(None, state, None, {"loss": 0.5})
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines


@pytest.mark.parametrize("resume", [True, False])
def test_a_start_that_is_refused_leaves_the_folder_as_it_was(tmp_path: Path, resume: bool) -> None:
    checkpoint = tmp_path / "checkpoint-2"
    checkpoint.mkdir()
    for name, text in {"trainer_state": '{"a": 1}', "rollout_state": '{"prompt_index": 5}'}.items():
        (checkpoint / f"{name}.json").write_text(text)
    (tmp_path / "log.jsonl").write_text('{"step": 2}\n{"step": 3}\n')
    (tmp_path / "settings.json").write_text('{"model": "another"}')
    given = {"model": "m", "servers": ["http://a"], "harnesses": ["pi"], "output_dir": str(tmp_path)}
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="began with other settings" if resume else "has checkpoints"):
        place(tmp_path, settings(given), resume)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
