"""TRL's rollout loop in this process, on sessions that have ended already in place of an environment server's."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
from datasets import Dataset
from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup

from harbor_env.models import FailureReason, HarborObservation, HarborResult
from harbor_env.packing import pack
from harbor_env.resource_sessions import HarborSession
from harbor_env.spread import Opened
from trl_integration.records import Record
from trl_integration.rewards import STANDARD
from trl_integration.rotation import RoundRobin
from trl_integration.sessions import RotatingSessionFactory, TrainingSession
from trl_integration.worker import HarborRolloutWorker

HARNESSES = ("tiny", "forgetful")
PROMPT = [{"role": "user", "content": "A task."}]
_TRACES = Path(__file__).parents[1] / "data/trainer/traces.json"

Outcome = tuple[float | None, str]
"""A rollout's reward, or None, and the name of its trace in traces.json."""


@cache
def traces() -> dict[str, str]:
    """Packed, by name."""
    return {name: pack(orjson.dumps(trace)) for name, trace in json.loads(_TRACES.read_text()).items()}


def result_of(outcome: Outcome, harness: str) -> HarborResult:
    reward, trace = outcome
    failed = None if reward is not None else FailureReason(kind="sandbox", sentence="no sandbox could be had")
    facts: dict[str, Any] = {"id": "r", "task": "t", "harness": harness, "sandbox": "local", "ok": not failed}
    return HarborResult(**facts, reward=reward, reason=failed, trace=traces()[trace])


class FakeQueue(queue.Queue[Any]):
    """A queue of this process that can be left behind unread, as one between processes can."""

    left_behind = False

    def cancel_join_thread(self) -> None:
        self.left_behind = True


class FakeServer(RotatingSessionFactory):
    """Rollouts end as `outcomes` say, in order, and the last of them for ever."""

    def __init__(self, outcomes: list[Outcome], **options: Any) -> None:
        super().__init__("http://127.0.0.1:9", rotation=RoundRobin(HARNESSES), **options)
        self._outcomes = list(outcomes)
        self._taking = threading.Lock()

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> TrainingSession:
        with self._taking:
            outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        harness = HARNESSES[(seed or 0) % 2]
        ended: Future[HarborResult] = Future()
        ended.set_result(result_of(outcome, harness))
        opened = Opened("http://127.0.0.1:9", None, HarborObservation())  # type: ignore[arg-type]
        record = Record(seed or 0, harness, self.policy()[0])
        return TrainingSession(HarborSession(opened, ended, lambda: None), lambda: record, STANDARD, self.ledger)


@contextmanager
def rollout_loop(*outcomes: Outcome, version: int = 1, **options: Any) -> Iterator[Any]:
    """A loop over three tasks whose rollouts end as `outcomes` say; closed at the end."""
    given: dict[str, Any] = {
        "harness_session_factory": partial(FakeServer, list(outcomes)),
        "model_name": "policy",
        "dataset": Dataset.from_dict({"prompt": [PROMPT] * 3}),
        "reward_funcs": [],
        # The loop would look a template up for the replies it parses; here it parses none.
        "processing_class": SimpleNamespace(response_template={}, pad_token_id=0),
        "eos_token_ids": [0],
        "num_generations": 2,
        "max_inflight_tasks": 2,
    }
    with loop_of({**given, **options}, version) as loop:
        yield loop


@contextmanager
def loop_of(given: dict[str, Any], version: int = 1) -> Iterator[Any]:
    """The loop as the worker's process makes it of what it is given, its queues in this process; closed at the end."""
    loop = HarborRolloutWorker._loop_cls(
        rollout_buffer=FakeQueue(),
        model_version_value=SimpleNamespace(value=version),
        heartbeat_value=SimpleNamespace(value=0.0),
        failed_event=threading.Event(),
        exception_info_queue=queue.Queue(),
        metrics_queue=FakeQueue(),
        **given,
    )
    try:
        yield loop
    finally:
        loop._session_pool.shutdown()
        loop._tool_pool.shutdown()
        loop._loop.close()


async def group_of(loop: Any, count: int, number: int = 0) -> RolloutGroup:
    """A group of `count` rollouts, put together as the loop does before it scores one."""
    rollouts = [await loop._generate_one(PROMPT, {}, None, group_id=number) for _ in range(count)]
    names = ("completions", "completions_ids", "completions_sequences")
    names += ("tool_call_counts", "tool_failure_counts", "rollout_rewards")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*rollouts, strict=True)), strict=True))
    return RolloutGroup(
        prompts=[PROMPT] * count,
        reward_kwargs={"task": list(range(count))},
        model_version=loop.model_version,
        group_id=number,
        env_rewards=[],
        **columns,
    )


def pushed(loop: Any) -> dict[str, Any]:
    """Everything the loop told the trainer so far, the latest value of each name."""
    told: dict[str, Any] = {}
    while not loop._metrics_queue.empty():
        told |= loop._metrics_queue.get_nowait()
    return told
