"""What a trainer is told of each rollout it asked for, over a server that answers what a script says."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from harbor_env.models import EngineChoice, FailureReason, HarborObservation, HarborResult
from harbor_env.resource_sessions import HarborSession
from harbor_env.spread import Opened
from trl_integration.records import Ledger, Record
from trl_integration.rewards import Reward, Scored
from trl_integration.rotation import RoundRobin
from trl_integration.sessions import RotatingSessionFactory, TrainingSession

Frame = dict[str, Any]


def session_of(reward: float | None, by: Reward, ledger: Ledger) -> TrainingSession:
    """A session whose rollout has ended with `reward`, or without one."""
    failed = None if reward is not None else FailureReason(kind="verifier", sentence="it wrote nothing")
    ended: Future[HarborResult] = Future()
    facts: Frame = {"id": "r", "task": "t", "harness": "pi", "sandbox": "local", "ok": not failed}
    ended.set_result(HarborResult(**facts, reward=reward, reason=failed))
    opened = Opened("http://127.0.0.1:9", None, HarborObservation())  # type: ignore[arg-type]
    return TrainingSession(HarborSession(opened, ended, lambda: None), lambda: Record(3, "pi"), by, ledger)


def none_given(scored: Scored) -> float:
    return None  # type: ignore[return-value]


def not_a_number(scored: Scored) -> float:
    return math.nan


def raising(scored: Scored) -> float:
    raise KeyError("bonus")


@pytest.mark.parametrize(
    ("by", "said"), [(none_given, "gave None"), (not_a_number, "gave nan"), (raising, "raised KeyError: 'bonus'")]
)
def test_a_rollout_whose_reward_fails_is_unscorable_and_told_once(by: Reward, said: str) -> None:
    calls: list[Scored] = []

    def counted(scored: Scored) -> float:
        calls.append(scored)
        return by(scored)

    ledger = Ledger()
    session = session_of(1.0, counted, ledger)
    with pytest.raises(RuntimeError, match=said):
        session.wait_for_completion()
    assert session.verify([]).env_reward is None
    assert session.fetch_training_trace().turns == []
    session.close()
    session.close()
    (record,) = ledger.take(3)
    assert (record.cause, record.scored, record.reward, record.task) == ("reward", None, None, "t")
    assert said in record.sentence
    assert len(calls) == 1


def test_waiting_for_a_rollout_that_could_not_be_scored_says_so() -> None:
    session = session_of(None, lambda scored: 1.0, Ledger())
    with pytest.raises(RuntimeError, match="could not be scored: verifier: it wrote nothing"):
        session.wait_for_completion()


def test_the_records_no_group_took_are_had_all_at_once() -> None:
    ledger = Ledger()
    for group in (2, 1, 2):
        ledger.add(Record(group, "pi"))
    ledger.take(1)
    assert [record.group for record in ledger.take_all()] == [2, 2]
    assert ledger.take_all() == []


@asynccontextmanager
async def answering(answer: Callable[[Frame], Frame | None]) -> AsyncIterator[str]:
    """A fake environment server; `answer` gives the data of its reply to a message, or None for being full."""

    async def talk(connection: ServerConnection) -> None:
        async for message in connection:
            data = answer(json.loads(message))
            full = {"message": "CAPACITY_REACHED", "code": "CAPACITY_REACHED"}
            reply = {"type": "observation", "data": data} if data is not None else {"type": "error", "data": full}
            await connection.send(json.dumps(reply))

    async with serve(talk, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def test_a_server_of_another_version_is_told_to_the_ledger() -> None:
    async with answering(lambda frame: {"observation": {"instruction": ["of", "parts"]}}) as url:
        factory = RotatingSessionFactory(url, rotation=RoundRobin(("pi",)))
        with pytest.raises(RuntimeError, match="server is of another"):
            await asyncio.to_thread(factory.create, None, 5)
    (record,) = factory.ledger.take(5)
    assert (record.cause, record.harness) == ("server", "pi")
    assert "server is of another" in record.sentence


async def test_whatever_keeps_a_rollout_from_starting_is_told_to_the_ledger() -> None:
    def no_task(group: int | None) -> int:
        raise LookupError("no such task")

    factory = RotatingSessionFactory("http://127.0.0.1:9", rotation=RoundRobin(("pi",)), order=no_task)
    with pytest.raises(LookupError):
        factory.create(None, 5)
    assert [record.sentence for record in factory.ledger.take(5)] == ["no such task"]


async def test_each_try_asks_for_the_policy_that_is_current_when_it_starts() -> None:
    """The first try waits for room while a new version comes, and the second starts under a newer one still."""
    version = 1
    asked: list[str] = []
    resets: list[Frame] = []

    def answer(frame: Frame) -> Frame | None:
        nonlocal version
        if frame["type"] == "reset":
            resets.append(frame)
            version += 1
            return None if len(resets) == 1 else {"observation": {"instruction": "Do it."}}
        asked.append(frame["data"]["engine"]["model"])
        lost = {"kind": "sandbox", "sentence": "it was lost"}
        facts = {"id": "r", "task": "t", "harness": "pi", "sandbox": "local"}
        result = {**facts, "ok": len(asked) > 1, "reward": 1.0} if len(asked) > 1 else {**facts, "ok": False}
        return {"observation": {"result": result if len(asked) > 1 else {**result, "reason": lost}}, "done": True}

    async with answering(answer) as url:
        engine = EngineChoice(url="http://127.0.0.1:8", model="policy")
        factory = RotatingSessionFactory(url, rotation=RoundRobin(("pi",)), engine=engine, reward=lambda scored: 1.0)
        factory.policy = lambda: (version, f"policy-v{version}")
        session = await asyncio.to_thread(factory.create, None, 5)
        await asyncio.to_thread(session.wait_for_completion)
        session.close()
    assert asked == ["policy-v3", "policy-v4"]
    assert [record.version for record in factory.ledger.take(5)] == [4]
