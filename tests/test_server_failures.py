"""Whatever dies, hangs, floods or goes away: rollouts end as data, slots come back, the server goes on serving."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from harbor_env.gateway.types import Message, ToolCall
from harbor_env.models import HarborAction, HarborResult, HarborState
from tests.env_serving import ACTION, TINY, Environments, environments, free
from tests.tiny_harness import write_answer, write_task
from tests.waiting import until

WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
DONE = Message("assistant", "Done.")

IDLE = 1.5
SLOTS = 3

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environments]:
    folder = tmp_path_factory.mktemp("server")
    write_task(folder / "tasks" / "one")
    settings = {"max_concurrent_envs": SLOTS, "idle": IDLE, "ping": 0.3}
    async with environments(folder, folder / "tasks", **settings) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def served(server: Environments) -> Environments:
    server.engine.gate.set()
    await free(server, SLOTS)
    server.engine.answers[:] = [WRITES, DONE]
    server.engine.arrived.clear()
    server.engine.aborted = 0
    return server


def _workers() -> list[psutil.Process]:
    """Processes that the nursery forked."""
    nurseries = [child for child in psutil.Process().children() if "nursery" in " ".join(child.cmdline())]
    return [worker for nursery in nurseries for worker in nursery.children()]


async def _stuck(served: Environments) -> asyncio.Task[HarborResult]:
    """A step that waits for the engine."""
    served.engine.gate.clear()

    async def step() -> HarborResult:
        async with served.client() as env:
            await env.reset()
            observation = (await env.step(ACTION)).observation
            assert observation.result is not None, observation
            assert observation.reward == observation.result.reward
            result: HarborResult = observation.result
            return result

    stepping = asyncio.create_task(step())
    arriving = asyncio.create_task(served.engine.arrived.wait())
    await asyncio.wait((stepping, arriving), return_when=asyncio.FIRST_COMPLETED)
    arriving.cancel()
    assert not stepping.done() or await stepping is None, "the step ended before it asked the engine"
    return stepping


def _files_of_rollouts(served: Environments) -> list[Path]:
    return [
        path for path in (served.backend.config.data / "rollouts").rglob("*") if path.is_file() and path.stat().st_size
    ]


def _busiest() -> psutil.Process:
    return max(_workers(), key=lambda worker: len(worker.children(recursive=True)))


async def test_a_worker_that_is_killed_is_a_failure_of_the_sandbox_and_the_next_rollout_runs(
    served: Environments,
) -> None:
    stepping = await _stuck(served)
    _busiest().send_signal(signal.SIGKILL)
    result = await stepping
    assert result.reason is not None
    assert (result.ok, result.reward, result.reason.kind) == (False, None, "sandbox")
    assert _files_of_rollouts(served) == []
    await until(lambda: served.engine.aborted == 1)  # its sandbox is gone, and the harness in it
    served.engine.gate.set()
    async with served.client() as env:
        await env.reset()
        assert (await env.step(ACTION)).reward == 1.0


async def test_a_nursery_that_is_killed_is_started_again(served: Environments) -> None:
    for worker in _workers():
        worker.kill()
    [nursery] = [child for child in psutil.Process().children() if "nursery" in " ".join(child.cmdline())]
    nursery.kill()
    async with served.client() as env:
        await env.reset()
        assert (await env.step(ACTION)).reward == 1.0


async def test_a_worker_that_hangs_is_ended_at_the_deadline(served: Environments) -> None:
    served.backend.pool.grace = 0.5
    served.engine.gate.clear()
    async with served.client() as env:
        await env.reset()
        stepping = asyncio.create_task(env.step(HarborAction(harness=TINY, timeout=6.0)))
        await served.engine.arrived.wait()
        _busiest().send_signal(signal.SIGSTOP)
        result = (await stepping).observation.result
    assert result.reason.kind == "sandbox"
    assert result.reason.sentence == "The rollout did not end within its time-out. It had to be killed."


async def test_a_rollout_past_its_time_out_is_ended_and_says_so(served: Environments) -> None:
    served.engine.gate.clear()
    served.backend.pool.grace = 20.0
    async with served.client() as env:
        await env.reset()
        result = (await env.step(HarborAction(harness=TINY, timeout=4.0))).observation.result
    assert (result.ok, result.reward, result.reason.kind) == (False, None, "sandbox")
    assert result.reason.sentence.endswith("It was ended.")


async def test_above_the_limit_a_client_is_told_CAPACITY_REACHED_and_slots_come_back(served: Environments) -> None:
    clients = [served.client() for _ in range(SLOTS)]
    for env in clients:
        await env.reset()
    with pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
        await served.client().reset()
    for env in clients:
        await env.close()
    async with served.client() as env:
        assert not (await env.reset()).observation.error


async def test_an_idle_connection_is_closed_and_its_slot_is_free(served: Environments) -> None:
    idle = [served.client() for _ in range(SLOTS)]
    for env in idle:
        await env.reset()
    await free(served, 1)
    for env in idle:
        await env.close()


async def test_a_step_that_outlasts_the_idle_time_is_left_alone(served: Environments) -> None:
    outlasted = asyncio.Event()

    def hear(state: HarborState) -> None:
        if state.seconds > IDLE + 0.2:
            outlasted.set()

    served.engine.gate.clear()
    async with served.client(on_state=hear, heartbeat_s=0.3) as env:
        await env.reset()
        stepping = asyncio.create_task(env.step(ACTION))
        await outlasted.wait()
        served.engine.gate.set()
        assert (await stepping).reward == 1.0


async def test_a_half_open_connection_is_noticed_and_its_rollout_ended(served: Environments) -> None:
    served.engine.gate.clear()
    url = f"{served.url.replace('http', 'ws')}/ws"
    half = await connect(url, ping_interval=None)
    await half.send(json.dumps({"type": "reset", "data": {}}))
    await half.recv()
    await half.send(json.dumps({"type": "step", "data": {"harness": TINY}}))
    await served.engine.arrived.wait()
    half.transport.pause_reading()  # pings are not answered any more, and nothing says that the connection is gone
    await until(lambda: served.backend.pool.busy == 0)
    await until(lambda: served.engine.aborted > 0)  # the gateway hears by itself that nobody waits any more
    assert served.engine.aborted == 1
    half.transport.abort()


async def test_the_health_check_answers_while_workers_are_stopped(served: Environments) -> None:
    stepping = await _stuck(served)
    worker = _busiest()
    worker.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(5):
        assert await served.client().num_tasks("all") == 1
    worker.send_signal(signal.SIGCONT)
    served.engine.gate.set()
    assert (await stepping).ok
