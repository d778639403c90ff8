"""TRL's own `HarnessRolloutWorker` loop takes sessions of the factory as they are: scored, failed, or of a lost server.

Needs a Python that has torch and TRL, which the server's has not: OPENENV_HARBOR_TRAINER_PYTHON names it.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from harbor_env.errors import EngineError
from harbor_env.gateway.types import Message, ToolCall
from tests.env_serving import TINY, environments
from tests.fake_proxy import proxying
from tests.tiny_harness import write_answer, write_task
from tests.tokenizers import qwen3_dir
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("OPENENV_HARBOR_TRAINER_PYTHON", "")
WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
DONE = Message("assistant", "Done.")
NOBODY = "http://127.0.0.1:9"
"""An address at which no server listens."""


needs_trl = pytest.mark.skipif(not PYTHON, reason="OPENENV_HARBOR_TRAINER_PYTHON names no Python with torch, TRL 1.16")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    for name in ("train/one", "train/two"):
        write_task(tmp_path / "tasks" / name)
    return tmp_path / "tasks"


@pytest.mark.live
@pytest.mark.timeout(600)
@needs_trl
async def test_TRL_s_own_loop_gets_one_row_and_the_reward_and_nothing_from_a_failure(
    tmp_path: Path, tasks: Path
) -> None:
    async with environments(tmp_path, tasks) as served:
        served.engine.answers[:] = [WRITES, DONE, *[EngineError("engine_down", "gone")] * 9]
        scored, failed = await _drive(served.url)
        assert served.engine.requests[0].sampling.temperature == 0.7
    assert (scored["reward"], scored["calls"], len(scored["rows"])) == (1.0, 1, 1)
    [row] = scored["rows"]
    masks = [sum(values) for name, values in row.items() if "mask" in name]
    assert masks == [scored["sampled"]]
    assert (failed["reward"], failed["rows"], failed["sampled"]) == (None, [], 0)


@pytest.mark.live
@pytest.mark.timeout(600)
@needs_trl
async def test_TRL_s_own_loop_goes_on_with_the_servers_that_are_left(tmp_path: Path, tasks: Path) -> None:
    async with (
        environments(tmp_path / "dies", tasks) as dies,
        environments(tmp_path / "lives", tasks) as lives,
        proxying(dies.url) as way,
    ):
        dies.engine.gate.clear()
        lives.engine.answers[:] = [WRITES, DONE]
        driving = asyncio.create_task(_drive(NOBODY, way.url, lives.url))
        await dies.engine.arrived.wait()
        await way.cut()
        lost, scored = await driving
        await until(lambda: dies.backend.pool.busy == 0)
    assert (lost["reward"], lost["rows"], lost["sampled"]) == (None, [], 0)
    assert (scored["reward"], len(scored["rows"])) == (1.0, 1)


async def _drive(*urls: str) -> list[dict[str, Any]]:
    """What the loop made of two groups' rollouts, one after the other."""
    driver = await asyncio.create_subprocess_exec(
        *(PYTHON, str(ROOT / "tests/live/trl_driver.py"), ",".join(urls), str(qwen3_dir()), TINY),
        env={**os.environ, "PYTHONPATH": str(ROOT / "envs")},
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await driver.communicate()
    assert driver.returncode == 0
    made: list[dict[str, Any]] = json.loads(told.splitlines()[-1])
    return made
