"""An episode over openenv's own client: a task, one step, a result; whatever fails is a value.

The sandbox, Harbor's trial, worker processes and sockets are the real ones; the harness is tiny, the engine a fake.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harbor_env.client import HarborEnv
from harbor_env.gateway.types import Message, ToolCall
from harbor_env.models import HarborAction, HarborState
from tests.env_serving import ACTION, TINY, Environments, environments
from tests.fake_proxy import proxying
from tests.tiny_harness import write_answer, write_task
from tests.waiting import until

WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
DONE = Message("assistant", "Done.")
PROXY_IDLE = 1.5


pytestmark = pytest.mark.asyncio(loop_scope="module")  # one server for all: its workers import Harbor once


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environments]:
    folder = tmp_path_factory.mktemp("server")
    for name in ("train/one", "train/two", "test/three"):
        write_task(folder / "tasks" / name)
    async with environments(folder, folder / "tasks") as running:
        yield running


@pytest.fixture
def served(server: Environments) -> Environments:
    server.engine.answers[:] = [WRITES, DONE]
    server.engine.gate.set()
    server.engine.arrived.clear()
    server.engine.aborted = 0
    server.engine.holds_from = 0
    return server


async def test_a_step_is_a_reward_and_a_trace_the_client_expands(served: Environments) -> None:
    async with served.client() as env:
        reset = await env.reset(split="train", task="one", episode_id="e1")
        assert reset.observation.instruction.startswith("Write 42")
        assert (reset.done, reset.reward, reset.observation.task.name) == (False, None, "one")
        step = await env.step(ACTION)
        state = await env.state()
    result = step.observation.result
    assert result is not None
    assert (step.done, step.reward, result.ok, result.reason) == (True, 1.0, True, None), result
    assert step.observation.rewards == {"reward": 1.0}
    trace = result.training_trace()
    assert [len(turn.completion_token_ids) > 0 for turn in trace.turns] == [True, True]
    first, second = trace.turns
    assert second.prompt_token_ids[: len(first.prompt_token_ids)] == first.prompt_token_ids
    assert set(result.seconds) == {"sandbox", "setup", "agent", "verifier", "total"}
    assert result.log_tails["agent"].startswith("key ")
    assert "sk-" not in result.log_tails["agent"]
    assert (state.phase, state.turns, state.step_count, state.episode_id) == ("done", 2, 1, "e1")


async def test_a_second_step_is_an_error_value(served: Environments) -> None:
    async with served.client() as env:
        await env.reset(seed=0)
        await env.step(ACTION)
        second = await env.step(ACTION)
    assert (second.done, second.reward, second.observation.result) == (True, None, None)
    assert "reset first" in second.observation.error


async def test_state_is_told_while_the_step_runs(served: Environments) -> None:
    served.engine.gate.clear()
    async with served.client() as env:
        await env.reset(seed=0)
        stepping = asyncio.create_task(env.step(ACTION))
        await served.engine.arrived.wait()
        state = await env.state()
        assert (state.phase, state.turns, state.harness) == ("agent", 0, TINY)
        served.engine.holds_from = len(served.engine.requests) + 1
        served.engine.gate.set()
        await until(lambda: len(served.engine.requests) == served.engine.holds_from)
        state = await env.state()
        assert (state.phase, state.turns, state.last_tool) == ("agent", 1, "bash")
        assert state.tokens > 0
        assert state.seconds > 0
        served.engine.gate.set()
        assert (await stepping).reward == 1.0


async def test_a_step_outlasts_any_message_time_out_on_heartbeats(served: Environments) -> None:
    served.engine.gate.clear()
    heard = asyncio.Event()
    async with served.client(message_timeout_s=2.0, heartbeat_s=0.5, on_state=lambda state: heard.set()) as env:
        await env.reset(seed=0)
        stepping = asyncio.create_task(env.step(ACTION))
        await served.engine.arrived.wait()
        heard.clear()
        await heard.wait()
        served.engine.gate.set()
        assert (await stepping).reward == 1.0


async def test_a_step_survives_a_proxy_that_cuts_silent_connections_on_heartbeats_alone(served: Environments) -> None:
    served.engine.gate.clear()
    outlasted = asyncio.Event()

    def hear(state: HarborState) -> None:
        if state.seconds > 3 * PROXY_IDLE:
            outlasted.set()

    async with (
        proxying(served.url, idle=PROXY_IDLE) as proxy,
        HarborEnv(proxy.url, heartbeat_s=PROXY_IDLE / 5, on_state=hear) as env,
    ):
        await env.reset(seed=0)
        stepping = asyncio.create_task(env.step(ACTION))
        await outlasted.wait()
        served.engine.gate.set()
        assert (await stepping).reward == 1.0
        assert proxy.cuts == 0


async def test_a_step_cut_by_a_proxy_is_a_ConnectionError_and_its_rollout_is_cancelled(served: Environments) -> None:
    served.engine.gate.clear()
    async with (
        proxying(served.url, idle=PROXY_IDLE) as proxy,
        HarborEnv(proxy.url, heartbeat_s=60.0) as env,
    ):
        await env.reset(seed=0)
        with pytest.raises(ConnectionError, match="closed the connection"):
            await env.step(ACTION)
        assert proxy.cuts == 1
    await until(lambda: served.backend.pool.busy == 0)


async def test_a_client_that_goes_away_cancels_its_rollout(served: Environments) -> None:
    served.engine.gate.clear()
    env = served.client()
    await env.connect()
    await env.reset(seed=0)
    stepping = asyncio.create_task(env.step(ACTION))
    await served.engine.arrived.wait()
    stepping.cancel()
    await until(lambda: served.backend.pool.busy == 0)
    await until(lambda: served.engine.aborted > 0)  # the gateway hears by itself that nobody waits any more
    assert served.engine.aborted == 1
    await env.close()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [({"task": "nothing"}, "no task named 'nothing'"), ({"split": "../.."}, "no split"), ({"task": 7}, "no task 7")],
)
async def test_a_task_that_is_not_there_is_an_error_value(
    served: Environments, asked: dict[str, str | int], sentence: str
) -> None:
    async with served.client() as env:
        reset = await env.reset(**asked)
        step = await env.step(ACTION)
    assert sentence in reset.observation.error
    assert (reset.done, step.reward, step.observation.error) == (True, None, "There is no task yet: reset first.")


async def test_an_unknown_harness_or_sandbox_is_a_failure_with_a_reason(served: Environments) -> None:
    async with served.client() as env:
        await env.reset(seed=0)
        step = await env.step(HarborAction(harness="nobody"))
        await env.reset(seed=0)
        elsewhere = await env.step(HarborAction(harness=TINY, sandbox="nowhere"))
    assert step.observation.result.reason.kind == "task"
    assert "There is no harness 'nobody'" in step.observation.result.reason.sentence
    assert elsewhere.observation.result.ok is False


async def test_the_task_api_tells_splits_counts_ranges_and_one_task(served: Environments) -> None:
    env = served.client()
    assert [(split["name"], split["type"], split["num_tasks"]) for split in await env.splits()] == [
        ("train", "train", 2),
        ("test", "test", 1),
        ("all", "validation", 3),
    ]
    assert await env.num_tasks("train") == 2
    assert [task.name for task in await env.tasks("train", 1)] == ["two"]
    assert (await env.task("test", 0)).instruction.startswith("Write 42")
    with pytest.raises(RuntimeError, match="Invalid task index"):
        await env.task("train", 9)


async def test_a_synchronous_client_does_the_same(served: Environments) -> None:
    def episode() -> float | None:
        with served.client().sync() as env:
            assert env.reset(seed=1).observation.task.name == "two"
            reward: float | None = env.step(ACTION).reward
            return reward

    assert await asyncio.to_thread(episode) == 1.0
