"""A gateway that dies takes no rollout for a score: one whose harness gave up is a failure, the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harbor_env.gateway.types import Message, ToolCall
from harbor_env.server.backend import Backend
from harbor_env.server.outages import Outages
from harbor_env.server.settings import ServerConfig
from harbor_env.serving_gateway import EngineFlags
from tests.env_serving import ACTION, Environments, environments
from tests.serving import serving
from tests.tiny_harness import write_answer, write_task
from tests.waiting import until

WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
FOREVER = float("inf")


def test_an_outage_counts_for_what_ran_between_the_last_answer_before_it_and_the_first_after() -> None:
    outages = Outages()
    for moment in (1.0, 2.0):
        outages.heard(moment)
    assert outages.over(0.0, 5.0) is None
    outages.lost()
    assert outages.over(0.0, 5.0) == FOREVER
    assert outages.over(0.0, 1.5) is None
    outages.heard(4.0)
    assert [outages.over(*ran) for ran in ((0.0, 3.0), (3.0, 9.0), (0.0, 2.0), (4.0, 9.0))] == [4.0, 4.0, None, None]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environments]:
    folder = tmp_path_factory.mktemp("server")
    write_task(folder / "tasks" / "one")
    async with environments(folder, folder / "tasks") as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
async def test_a_score_of_a_harness_that_gave_up_when_the_gateway_died_is_no_score(server: Environments) -> None:
    server.engine.answers[:] = [WRITES]
    server.engine.holds_from = 2
    async with server.client() as env:
        await env.reset()
        stepping = asyncio.create_task(env.step(ACTION))
        await until(lambda: len(server.engine.requests) == 2)
        await server.way.cut()
        await until(lambda: server.backend.address is None)
        await server.way.start()
        result = (await stepping).observation.result
    assert (result.ok, result.reward, result.reason.kind) == (False, None, "capture"), result
    assert "did not go on" in result.reason.sentence
    assert result.rewards == {"reward": 1.0}
    assert len(result.training_trace().turns) == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_a_rollout_that_begins_while_the_gateway_is_away_waits_for_it(server: Environments) -> None:
    server.engine.gate.set()
    server.engine.answers[:] = [WRITES, Message("assistant", "Done.")]
    await server.way.cut()
    async with server.client() as env:
        await env.reset()
        stepping = asyncio.create_task(env.step(ACTION))
        await until(lambda: server.backend.address is None)
        await server.way.start()
        assert (await stepping).reward == 1.0


async def test_a_failure_nobody_foresaw_ends_the_start_and_is_not_waited_for(tmp_path: Path) -> None:
    engine = EngineFlags(engine="scripted:tests.policies:is_empty", template_kwargs={1: "no name"})  # type: ignore[dict-item]
    backend = Backend(ServerConfig(engine=engine, data=tmp_path))
    try:
        with pytest.raises(TypeError):
            async with asyncio.timeout(30):
                await backend.start()
    finally:
        await backend.close()


class Tripping(Outages):
    """Fails as nobody foresaw, once the gateway has been heard for the second time."""

    beats = 0

    def heard(self, now: float) -> None:
        self.beats += 1
        if self.beats > 1:
            raise ZeroDivisionError("unforeseen")


async def test_a_gateway_that_is_not_supervised_any_more_is_handed_to_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path / "gateway", admin_key="k") as gateway:
        backend = Backend(ServerConfig(engine=EngineFlags(gateway=gateway.url, admin_key="k"), data=tmp_path / "data"))
        backend.outages = Tripping()
        try:
            await backend.start()
            assert backend.address is not None
            async with asyncio.timeout(30):
                await until(lambda: backend.address is None)
            assert await backend.engine_facts() == {"ready": False}
        finally:
            await backend.close()
