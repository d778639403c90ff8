"""A whole training run, small: the real trainer, its worker's process, an environment server, two harnesses, LoRA.

The engine alone is a fake: it says what a script says, but with the log probabilities of the model that is trained.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.train import main
from tests.trainer.fake_vllm import BASE, FakeVllm
from tests.trainer.world import SPLIT, TASKS, EverySecondTime, environment_server, sandbox_obstacle, tiny_model
from trl_integration.metrics import audit
from trl_integration.records import Record
from trl_integration.rewards import STANDARD, Scored
from trl_integration.rotation import rotation

HARNESSES = ["tests.tiny_harness:TINY", "tests.tiny_harness:FORGETFUL"]
PER_GROUP = 2
ROWS = 6
"""Of a step: a group in each harness, in one of which every rollout has two rows."""
SETTINGS = {
    "harnesses": HARNESSES,
    "split": SPLIT,
    "lora": {"r": 4, "target_modules": ["q_proj", "v_proj"]},
    "training": {
        "learning_rate": 1e-2,
        "num_generations": PER_GROUP,
        "per_device_train_batch_size": ROWS,
        "token_budget": 0,
        "max_inflight_tasks": PER_GROUP,
        "max_staleness": 3,
        "save_steps": 1,
        "disable_tqdm": True,
    },
}


@dataclass(frozen=True, slots=True)
class World:
    """An engine, an environment server over it, and a folder with the settings of a run on both."""

    engine: FakeVllm
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    async def train(self, *arguments: str) -> None:
        self.monkeypatch.setattr(sys, "argv", ["train.py", str(self.folder / "train.yaml"), *arguments])
        await asyncio.to_thread(main)  # it blocks, and the engine runs on this loop

    def steps(self) -> list[dict[str, Any]]:
        return [line for line in _lines(self.folder / "out/log.jsonl") if "loss" in line]

    def records(self) -> list[Record]:
        lines = _lines(self.folder / "out/rollouts.jsonl")
        return [Record(**{**line, "scored": line["scored"] and Scored(**line["scored"])}) for line in lines]

    def aside(self) -> list[dict[str, Any]]:
        """The records of rollouts that the second start put aside."""
        path = self.folder / "out/rollouts.jsonl.1"
        return _lines(path) if path.exists() else []

    def checkpoint(self, step: int) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / f"out/checkpoint-{step}/rollout_state.json").read_text())
        return state


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    if obstacle := await sandbox_obstacle():
        pytest.skip(f"no sandbox here: {obstacle}")
    monkeypatch.setenv("TEACHER_TASKS", str(TASKS))
    model = await asyncio.to_thread(tiny_model, tmp_path / "model")
    async with (
        FakeVllm(model, EverySecondTime()).served() as engine,
        environment_server(engine.url, model, tmp_path / "served") as server,
    ):
        own = {"model": str(model), "servers": server, "engine_url": engine.url, "output_dir": str(tmp_path / "out")}
        (tmp_path / "train.yaml").write_text(yaml.safe_dump({**SETTINGS, **own}))
        yield World(engine, tmp_path, monkeypatch)


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")
async def test_two_harnesses_are_trained_in_turn_and_a_run_goes_on_where_it_ended(world: World) -> None:
    await world.train("training.max_steps=2")
    first, second = world.steps()
    assert (first["step"], second["step"]) == (1, 2)
    assert [first["ratio/row_max"], first["ratio/row_min"]] == pytest.approx([1.0, 1.0], abs=1e-3)
    assert first["ratio/token_log_max"] <= 1e-3
    assert abs(second["ratio/row_max"] - 1.0) > 1e-3, "its rollouts are of the policy before the first step"
    for harness in HARNESSES:
        assert [step for step in (first, second) if f"harness/{harness}/ratio" in step]
    before = world.records()
    _check_rollouts(before)
    assert world.engine.asked.count(BASE) == 2, "the server probed its own engine, and no rollout asked for the base"

    await world.train("training.max_steps=3", "--resume")
    assert [step["step"] for step in world.steps()] == [1, 2, 3]
    kept = [record for record in before if record.group < world.checkpoint(2)["prompt_index"]]
    assert world.records()[: len(kept)] == kept, "each group is told once"
    assert len(kept) + len(world.aside()) == len(before)
    _check_rollouts(world.records())
    assert world.engine.loaded == [f"trl-policy-v{version}" for version in range(1, len(world.engine.loaded) + 1)]
    assert set(world.engine.asked) <= {BASE, *world.engine.loaded}
    assert world.checkpoint(3)["prompt_index"] > world.checkpoint(2)["prompt_index"] > 2


def _check_rollouts(records: list[Record]) -> None:
    """Groups numbered from 0, all but the last whole, each in its turn's harness, rewards by the formula."""
    turns = rotation(HARNESSES, tasks=len(list(TASKS.glob("*/task.toml"))))
    groups = Counter(record.group for record in records)
    assert sorted(groups) == list(range(len(groups)))
    *whole, _ = (groups[number] for number in sorted(groups))
    assert set(whole) == {PER_GROUP}
    assert all(record.harness == turns(record.group) for record in records)
    assert {record.cause for record in records} <= {"", "cancelled"}, "only the trainer's end stops a rollout"
    found = audit(records, STANDARD)
    assert found.wrong == ()
    assert found.groups > found.without_contrast
