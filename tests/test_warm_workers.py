"""Worker processes of a server fork one server's harness, which is the server's own and gone with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from harbor_env.rollout import GatewayAddress, RolloutSpec
from harbor_env.sandboxes.warm import find_fork_server
from harbor_env.server.pool import Pool
from harbor_env.server.worker import Run
from tests.sandbox_world import needs_sandbox
from tests.serving import serving
from tests.tiny_harness import TINY, TinyAgent, write_task
from tests.waiting import until
from tests.warm_world import served, tell, tiny_layer, wanted


class TellingAgent(TinyAgent):
    """Asks no model for anything, but, in a sandbox beside the rollout's, the fake harness of `folder` for its process.

    That harness runs on the Python of the tests, which a task's sandbox need not have.
    """

    def __init__(self, *args: Any, folder: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._folder = Path(folder)

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        line = await find_fork_server(wanted(self._folder))
        async with served(line, self._folder) as box:
            (self.logs_dir / "tiny.txt").write_text(json.dumps(await tell(box)))


TELLING = replace(TINY, agent="tests.test_warm_workers:TellingAgent")


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    async with serving(tmp_path / "data") as running:
        gateway = GatewayAddress(running.url, model="m", level="tokens")
        task, harness = write_task(tmp_path / "write-42"), "tests.test_warm_workers:TELLING"
        tiny_layer(tmp_path)
        spec = RolloutSpec("r", task, harness, gateway, tmp_path / "out", agent_kwargs={"folder": str(tmp_path)})
        yield Run(spec)


async def _tell(pool: Pool, run: Run, name: str) -> dict[str, Any]:
    """What the harness said of its process in a rollout."""
    result = await pool.run(replace(run, spec=replace(run.spec, name=name)), lambda at: None, within=90.0)
    told: dict[str, Any] = json.loads(result["log_tails"]["agent"])
    return told


@needs_sandbox
async def test_workers_fork_one_server_and_the_next_when_it_died_and_leave_none(run: Run, tmp_path: Path) -> None:
    pool = Pool(tmp_path / "log", limit=2)
    await pool.start()
    first, second = await asyncio.gather(_tell(pool, run, "r1"), _tell(pool, run, "r2"))
    server = psutil.Process(first["imported_in"])
    assert second["imported_in"] == server.pid
    assert server.parent() == psutil.Process()
    server.kill()
    await until(lambda: server.status() == psutil.STATUS_ZOMBIE)
    third = await _tell(pool, run, "r3")
    assert third["imported_in"] not in (server.pid, third["pid"])
    await pool.close()
    assert not psutil.pid_exists(third["imported_in"])
