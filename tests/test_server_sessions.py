"""Sessions of the factory keep the protocol TRL's worker drives them by: create, wait, fetch, verify, close."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from openenv.core.harness import ResourceSession, ResourceSessionFactory, TrainableSession
from openenv.core.harness.capture.upstream import training_sampling
from openenv.core.harness.capture.validate import validate_training_turn
from websockets.asyncio.server import ServerConnection, serve

from harbor_env.errors import EngineError
from harbor_env.gateway.types import Message, ToolCall
from harbor_env.models import HarborObservation
from harbor_env.resource_sessions import HarborSession, HarborSessionFactory, pinned
from harbor_env.spread import Spread
from tests.env_serving import TINY, Environments, environments
from tests.fake_proxy import proxying
from tests.tiny_harness import write_answer, write_task
from tests.waiting import until

WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
DONE = Message("assistant", "Done.")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environments]:
    folder = tmp_path_factory.mktemp("server")
    for name in ("train/one", "train/two"):
        write_task(folder / "tasks" / name)
    async with environments(folder, folder / "tasks") as running:
        yield running


@pytest.fixture
def served(server: Environments) -> Environments:
    server.engine.answers[:] = [WRITES, DONE]
    server.engine.gate.set()
    server.engine.arrived.clear()
    server.engine.requests.clear()
    server.engine.aborted = 0
    server.engine.holds_from = 0
    return server


def _factory(served: Environments, **options: Any) -> HarborSessionFactory:
    """Made as TRL's worker makes it: a partial over the server, called with the trainer's sampling."""
    sampling = training_sampling({"temperature": 0.7, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0})
    given = {"server_url": served.url, "harness": TINY, **options}
    return HarborSessionFactory(split="train", sampling=sampling, **given)


def _ended(session: HarborSession) -> tuple[int, float | None]:
    return session.wait_for_completion(), session.verify([]).env_reward


def _drive(factory: HarborSessionFactory, then: Callable[[HarborSession], Any], seed: int = 0) -> Any:
    session = factory.create([{"role": "user", "content": "ignored"}], seed=seed, episode_id="e")
    try:
        return then(session)
    finally:
        session.close()


async def test_a_rollout_passes_through_the_calls_a_trainer_makes(served: Environments) -> None:
    def train(session: HarborSession) -> None:
        assert isinstance(session, ResourceSession)
        assert isinstance(session, TrainableSession)
        assert session.wait_for_completion() == 0
        trace = session.fetch_training_trace()
        for turn in trace.turns:
            validate_training_turn(
                turn.prompt_token_ids, turn.completion_token_ids, turn.per_token_logps, turn.loss_mask
            )
        entries = trace.to_trace_entries()
        assert entries[0]["response"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "bash"
        verified = session.verify(entries[-1]["request"]["messages"])
        assert (verified.env_reward, verified.done) == (1.0, True)
        assert verified.metrics["counts"]["turns"] == len(trace.turns) == 2

    assert issubclass(HarborSessionFactory, ResourceSessionFactory)
    await asyncio.to_thread(_drive, _factory(served), train)
    assert served.engine.requests[0].sampling.temperature == 0.7


async def test_a_group_s_seed_chooses_one_task_and_one_harness(served: Environments) -> None:
    chosen: list[int | None] = []

    def harness(seed: int | None) -> str:
        chosen.append(seed)
        return TINY

    factory = _factory(served, harness=harness)

    def task(session: HarborSession) -> str:
        session.wait_for_completion()
        assert session.result is not None
        return session.result.task

    served.engine.answers[:] = [DONE] * 3
    assert [await asyncio.to_thread(_drive, factory, task, seed) for seed in (5, 5, 6)] == ["two", "two", "one"]
    assert chosen == [5, 5, 6]


async def test_a_rollout_that_failed_has_no_reward_and_no_turns(served: Environments) -> None:
    served.engine.answers[:] = [EngineError("engine_down", "gone")] * 9

    def failed(session: HarborSession) -> None:
        assert session.wait_for_completion() == 1
        assert session.fetch_training_trace().turns == []
        verified = session.verify([])
        assert verified.env_reward is None
        assert verified.metrics["reason"]["kind"] == "engine"

    await asyncio.to_thread(_drive, _factory(served), failed)


async def test_an_infrastructure_failure_is_run_again_where_asked(served: Environments) -> None:
    served.engine.answers[:] = [EngineError("engine_down", "gone"), WRITES, DONE]

    def retried(session: HarborSession) -> float | None:
        session.wait_for_completion()
        return session.verify([]).env_reward

    assert await asyncio.to_thread(_drive, _factory(served, retries=1), retried) == 1.0


async def test_a_rollout_whose_server_was_lost_is_run_again_on_another_where_asked(served: Environments) -> None:
    served.engine.gate.clear()
    async with proxying(served.url) as lost, proxying(served.url) as other:
        factory = _factory(served, server_url=[lost.url, other.url], retries=1)
        driving = asyncio.create_task(asyncio.to_thread(_drive, factory, _ended))
        await served.engine.arrived.wait()
        await lost.cut()
        await until(lambda: served.engine.aborted == 1)
        served.engine.gate.set()
        assert await driving == (0, 1.0)


async def test_a_harness_out_of_time_raises_TimeoutError_and_keeps_its_trace(served: Environments) -> None:
    served.engine.answers[:] = [WRITES]
    served.engine.holds_from = 2

    def late(session: HarborSession) -> None:
        with pytest.raises(TimeoutError):
            session.wait_for_completion()
        assert len(session.fetch_training_trace().turns) == 1
        assert session.verify([]).env_reward == 1.0

    await asyncio.to_thread(_drive, _factory(served, agent_timeout=4.0), late)


async def test_waiting_no_longer_than_asked_ends_the_rollout(served: Environments) -> None:
    served.engine.gate.clear()

    def impatient(session: HarborSession) -> None:
        with pytest.raises(TimeoutError, match="did not end within"):
            session.wait_for_completion(timeout_s=0.2)
        assert session.verify([]).env_reward is None

    await asyncio.to_thread(_drive, _factory(served), impatient)
    await until(lambda: served.backend.pool.busy == 0)


async def test_closing_a_session_releases_whoever_waits_for_it(served: Environments) -> None:
    served.engine.gate.clear()
    waits = threading.Event()

    def closed_meanwhile(session: HarborSession) -> None:
        threading.Thread(target=lambda: (waits.wait(), session.close())).start()
        waits.set()
        with pytest.raises(RuntimeError, match="closed"):
            session.wait_for_completion()

    await asyncio.to_thread(_drive, _factory(served), closed_meanwhile)
    await until(lambda: served.backend.pool.busy == 0)


async def test_a_session_that_cannot_be_had_raises(served: Environments) -> None:
    factory = HarborSessionFactory("http://127.0.0.1:9", patience=0)
    with pytest.raises(ConnectionError, match="No server takes the rollout"):
        await asyncio.to_thread(factory.create, None)
    with pytest.raises(RuntimeError, match="no split"):
        await asyncio.to_thread(_factory(served).create, {"split": "nowhere"})


async def test_a_result_in_a_form_this_version_does_not_know_is_a_failure_and_nothing_raised() -> None:
    newer = {"reset": {"instruction": "go"}, "step": {"result": {"ok": "partly", "shards": 3}}}

    async def answer(connection: ServerConnection) -> None:
        async for frame in connection:
            asked = json.loads(frame)["type"]
            observation = {"observation": newer.get(asked, {}), "done": asked == "step"}
            await connection.send(json.dumps({"type": "observation", "data": observation}))

    def ended(session: HarborSession) -> None:
        assert _ended(session) == (1, None)
        assert session.fetch_training_trace().turns == []
        assert "its server is of another" in session.verify([]).metrics["reason"]["sentence"]

    async with serve(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await asyncio.to_thread(_drive, HarborSessionFactory(f"http://127.0.0.1:{port}", harness=TINY), ended)


async def test_sampling_that_truncates_is_refused() -> None:
    with pytest.raises(ValueError, match="min_p"):
        pinned({"temperature": 1.0, "min_p": 0.1})


@dataclass
class FakeEnv:
    """A client double: `room` is how many more episodes its server takes; None: it does not answer."""

    room: list[int | None]

    async def reset(self, **ask: Any) -> Any:
        if self.room[0] is None:
            raise ConnectionError("refused")
        if self.room[0] == 0:
            raise RuntimeError("Server error: full (code: CAPACITY_REACHED)")
        self.room[0] -= 1
        return type("Reset", (), {"observation": HarborObservation(instruction="go")})

    async def close(self) -> None:
        return None


async def test_rollouts_spread_over_servers_and_pass_over_full_and_dead_ones() -> None:
    rooms: dict[str, list[int | None]] = {"http://a": [2], "http://b": [9], "http://dead": [None]}
    spread = Spread(list(rooms), lambda url: FakeEnv(rooms[url]), patience=0)  # type: ignore[arg-type,return-value]
    opened = [await spread.open({"seed": 1}) for _ in range(6)]
    assert [one.url for one in opened] == ["http://a", "http://b", "http://a", "http://b", "http://b", "http://b"]
    await spread.close(opened[1])
