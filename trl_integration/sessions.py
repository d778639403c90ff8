"""Rollouts on environment servers as TRL takes them, with the harness of their group and the reward they earned.

Invariant: every rollout that was asked for is told to the ledger once, also one that could not even be started.
"""

from __future__ import annotations

import harbor_env.light_openenv  # noqa: F401  # first: it keeps openenv's web interface out

# isort: split
import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import ResourceSession, ResourceSessionFactory, ToolResult, TrainingTrace, VerifyResult

from harbor_env.agent_kwargs import AgentKwargs, kwargs_of
from harbor_env.models import EngineChoice, HarborAction, HarborResult
from harbor_env.resource_sessions import HarborSession, HarborSessionFactory
from trl_integration.records import Ledger, Record, scored_from, tokens_of, weight_versions
from trl_integration.rewards import STANDARD, Reward, Scored
from trl_integration.rotation import Rotation


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """A rollout's reward. Without one, `scored` is None as well, and `cause` and `sentence` say why."""

    scored: Scored | None = None
    reward: float | None = None
    cause: str = ""
    sentence: str = ""


def judge(result: HarborResult, reward: Reward) -> Judgement:
    """A reward of one's own may fail: its rollout is then unscorable, like one whose verifier failed."""
    scored = scored_from(result)
    if scored is None:
        return Judgement(
            cause=result.reason.kind if result.reason else "", sentence=result.reason.sentence if result.reason else ""
        )
    try:
        given: object = reward(scored)
    except Exception as error:  # noqa: BLE001  # it is anybody's function
        return Judgement(cause="reward", sentence=f"The reward raised {type(error).__name__}: {error}")
    if not isinstance(given, Real) or not math.isfinite(given):
        return Judgement(cause="reward", sentence=f"The reward gave {given!r}, which is no finite number.")
    return Judgement(scored, float(given))


class TrainingSession(ResourceSession):  # type: ignore[misc]
    """A `HarborSession` whose `verify` gives the composed reward, and which is told to the ledger when it is closed.

    `begun` tells what is known of the rollout without its result.
    """

    def __init__(self, inner: HarborSession, begun: Callable[[], Record], reward: Reward, ledger: Ledger) -> None:
        self._inner = inner
        self._begun = begun
        self._reward = reward
        self._ledger = ledger
        self._judgement: Judgement | None = None
        self._closed = False
        self._lock = threading.Lock()

    def initial_messages(self) -> list[dict[str, Any]]:
        return self._inner.initial_messages()

    def list_tools(self) -> list[Tool]:
        return self._inner.list_tools()

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        return self._inner.call_tool(name, arguments)

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """As `HarborSession` does. RuntimeError: it could not be scored; TRL then counts no turns or tokens for it."""
        try:
            status = self._inner.wait_for_completion(timeout_s)
        except TimeoutError:
            self._refuse_unscorable()
            raise
        self._refuse_unscorable()
        return status

    def fetch_training_trace(self) -> TrainingTrace:
        """Every trained and context turn once; none where the rollout could not be scored, for nothing trains on it."""
        judged = self._judged()
        return self._inner.fetch_training_trace() if judged and judged.scored else TrainingTrace(turns=[])

    def fetch_proxy_trace(self) -> list[dict[str, Any]]:
        return self._inner.fetch_proxy_trace()

    def verify(self, transcript: Sequence[Mapping[str, Any]], final_state: Any | None = None) -> VerifyResult:
        verified: VerifyResult = self._inner.verify(transcript, final_state)
        judged = self._judged()
        return dataclasses.replace(verified, env_reward=judged.reward if judged else None)

    def close(self) -> None:
        self._inner.close()
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._ledger.add(self._finished())

    def _judged(self) -> Judgement | None:
        """The judgement of the result, made once; None before there is one."""
        with self._lock:
            if self._judgement is None and (result := self._inner.result) is not None:
                self._judgement = judge(result, self._reward)
            return self._judgement

    def _refuse_unscorable(self) -> None:
        judged = self._judged()
        if judged is not None and judged.scored is None:
            raise RuntimeError(f"The rollout could not be scored: {judged.cause}: {judged.sentence}")

    def _finished(self) -> Record:
        record, result, judged = self._begun(), self._inner.result, self._judged()
        if result is None or judged is None:
            return dataclasses.replace(record, cause="cancelled", sentence="It was closed before it ended.")
        trace = result.compact_trace()
        trained, context = tokens_of(trace)
        return dataclasses.replace(
            record,
            task=result.task,
            scored=judged.scored,
            reward=judged.reward,
            cause=judged.cause,
            sentence=judged.sentence,
            rows=result.counts.get("rows", 0),
            trained=trained,
            context=context,
            versions=weight_versions(trace),
            seconds=dict(result.seconds),
        )


class _Start:
    """One rollout at its start. `action` chooses the policy's version anew at each try; `record` has the latest."""

    def __init__(self, record: Record, choose: Callable[[], tuple[int, HarborAction]]) -> None:
        self.record = record
        self._choose = choose

    def action(self) -> HarborAction:
        version, action = self._choose()
        self.record = dataclasses.replace(self.record, version=version)
        return action


class RotatingSessionFactory(ResourceSessionFactory[TrainingSession]):  # type: ignore[misc]
    """Sessions on one environment server or several, each in the harness its group has.

    `retries` refills a rollout that failed for no fault of the policy; after that its group is one smaller. `options`
    are those of `HarborSessionFactory`, but `agent_kwargs` are by harness. `order` gives a group's task. `policy` tells
    the policy's version and, where versions are served under names of their own, the engine's model name, both at the
    moment a rollout starts.
    """

    def __init__(
        self,
        server_url: str | Sequence[str],
        *,
        rotation: Rotation,
        reward: Reward = STANDARD,
        ledger: Ledger | None = None,
        retries: int = 1,
        engine: EngineChoice | None = None,
        agent_kwargs: AgentKwargs | None = None,
        order: Callable[[int | None], int] | None = None,
        **options: Any,
    ) -> None:
        self.ledger = ledger or Ledger()
        self.policy: Callable[[], tuple[int, str]] = lambda: (0, "")
        self._rotation = rotation
        self._reward = reward
        self._engine = engine
        self._order = order
        self._agents = agent_kwargs or {}
        self._sessions = HarborSessionFactory(server_url, harness=rotation, retries=retries, **options)

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> TrainingSession:
        """Start a rollout of group `seed`. What `HarborSessionFactory.create` raises is told to the ledger as well."""
        version, _ = self.policy()
        start = _Start(Record(seed or 0, self._rotation(seed), version), lambda: self._chosen(seed))
        try:
            if self._order is not None:
                task = {"index": self._order(seed)}
            inner = self._sessions.start(task, seed, episode_id, start.action)
        except Exception as error:  # whatever it was, it is told and goes on
            self.ledger.add(dataclasses.replace(start.record, cause="server", sentence=str(error)))
            raise
        return TrainingSession(inner, lambda: start.record, self._reward, self.ledger)

    def harness_number(self, group: int) -> int:
        """The place of the group's harness among those of the rotation."""
        return self._rotation.harnesses.index(self._rotation(group))

    def _chosen(self, seed: int | None) -> tuple[int, HarborAction]:
        """The policy's version now, and what a rollout does under it: its engine's model, its harness's arguments."""
        version, model = self.policy()
        engine = self._engine.model_copy(update={"model": model}) if self._engine and model else self._engine
        action = self._sessions.action_for(seed)
        given = dict(kwargs_of(action.harness, self._agents))
        return version, action.model_copy(update={"engine": engine, "agent_kwargs": given})
