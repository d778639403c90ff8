"""TRL's own `HarnessRolloutWorker` loop takes sessions of the factory as they are: a scored rollout, and a failed one.

Needs a Python that has torch and TRL, which the server's has not: OPENENV_HARBOR_TRAINER_PYTHON names it.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from harbor_env.errors import EngineError
from harbor_env.gateway.types import Message, ToolCall
from tests.env_serving import TINY, environments
from tests.tiny_harness import write_answer, write_task
from tests.tokenizers import qwen3_dir

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("OPENENV_HARBOR_TRAINER_PYTHON", "")
WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
DONE = Message("assistant", "Done.")


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.skipif(not PYTHON, reason="OPENENV_HARBOR_TRAINER_PYTHON names no Python with torch and TRL 1.16")
async def test_TRL_s_own_loop_gets_one_row_and_the_reward_and_nothing_from_a_failure(tmp_path: Path) -> None:
    for name in ("train/one", "train/two"):
        write_task(tmp_path / "tasks" / name)
    async with environments(tmp_path, tmp_path / "tasks") as served:
        served.engine.answers[:] = [WRITES, DONE, *[EngineError("engine_down", "gone")] * 9]
        driver = await asyncio.create_subprocess_exec(
            *(PYTHON, str(ROOT / "tests/live/trl_driver.py"), served.url, str(qwen3_dir()), TINY),
            env={**os.environ, "PYTHONPATH": str(ROOT / "envs")},
            stdout=asyncio.subprocess.PIPE,
        )
        told, _ = await driver.communicate()
        assert driver.returncode == 0
        assert served.engine.requests[0].sampling.temperature == 0.7
    scored, failed = json.loads(told.splitlines()[-1])
    assert (scored["reward"], scored["calls"], len(scored["rows"])) == (1.0, 1, 1)
    [row] = scored["rows"]
    masks = [sum(values) for name, values in row.items() if "mask" in name]
    assert masks == [scored["sampled"]]
    assert (failed["reward"], failed["rows"], failed["sampled"]) == (None, [], 0)
