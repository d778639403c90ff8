"""Rollouts on environment servers as TRL takes them, with the harness of their group and the reward they earned.

Invariant: every rollout that was asked for is told to the ledger once, also one that could not even be started.
"""

from __future__ import annotations

import harbor_env.light_openenv  # noqa: F401  # first: it keeps openenv's web interface out

# isort: split
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import ResourceSession, ResourceSessionFactory, ToolResult, TrainingTrace, VerifyResult

from harbor_env.agent_kwargs import AgentKwargs, kwargs_of
from harbor_env.models import EngineChoice, HarborAction
from harbor_env.resource_sessions import HarborSession, HarborSessionFactory
from trl_integration.records import Ledger, Record, scored_from, tokens_of, weight_versions
from trl_integration.rewards import STANDARD, Reward
from trl_integration.rotation import Rotation


class TrainingSession(ResourceSession):  # type: ignore[misc]
    """A `HarborSession` whose `verify` gives the composed reward, and which is told to the ledger when it is closed."""

    def __init__(self, inner: HarborSession, record: Record, reward: Reward, ledger: Ledger) -> None:
        self._inner = inner
        self._record = record
        self._reward = reward
        self._ledger = ledger
        self._closed = False

    def initial_messages(self) -> list[dict[str, Any]]:
        return self._inner.initial_messages()

    def list_tools(self) -> list[Tool]:
        return self._inner.list_tools()

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        return self._inner.call_tool(name, arguments)

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        return self._inner.wait_for_completion(timeout_s)

    def fetch_training_trace(self) -> TrainingTrace:
        """Every trained and context turn once; none where the rollout could not be scored, for nothing trains on it."""
        return self._inner.fetch_training_trace() if self._scorable else TrainingTrace(turns=[])

    def fetch_proxy_trace(self) -> list[dict[str, Any]]:
        return self._inner.fetch_proxy_trace()

    def verify(self, transcript: Sequence[Mapping[str, Any]], final_state: Any | None = None) -> VerifyResult:
        verified: VerifyResult = self._inner.verify(transcript, final_state)
        result = self._inner.result
        scored = scored_from(result) if result is not None else None
        reward = self._reward(scored) if scored is not None else None
        return dataclasses.replace(verified, env_reward=reward)

    def close(self) -> None:
        self._inner.close()
        if not self._closed:
            self._closed = True
            self._ledger.add(self._finished())

    @property
    def _scorable(self) -> bool:
        return self._inner.result is not None and self._inner.result.reward is not None

    def _finished(self) -> Record:
        record, result = self._record, self._inner.result
        facts = {name: getattr(record, name) for name in ("group", "harness", "version")}
        if result is None:
            return Record(**facts, cause="cancelled", sentence="It was closed before it ended.")
        scored, trace = scored_from(result), result.compact_trace()
        trained, context = tokens_of(trace)
        return Record(
            **facts,
            task=result.task,
            scored=scored,
            reward=self._reward(scored) if scored else None,
            cause=result.reason.kind if result.reason else "",
            sentence=result.reason.sentence if result.reason else "",
            rows=result.counts.get("rows", 0),
            trained=trained,
            context=context,
            versions=weight_versions(trace),
            seconds=dict(result.seconds),
        )


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
        options |= {"harness": rotation, "retries": retries}
        self._sessions = _Following(self._engine_now, agent_kwargs or {}, server_url, **options)

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> TrainingSession:
        """Start a rollout of group `seed`. What `HarborSessionFactory.create` raises is told to the ledger as well."""
        version, _ = self.policy()
        record = Record(seed or 0, self._rotation(seed), version)
        if self._order is not None:
            task = {"index": self._order(seed)}
        try:
            inner = self._sessions.create(task, seed, episode_id)
        except (RuntimeError, OSError) as error:
            self.ledger.add(Record(record.group, record.harness, version, cause="server", sentence=str(error)))
            raise
        return TrainingSession(inner, record, self._reward, self.ledger)

    def harness_number(self, group: int) -> int:
        """The place of the group's harness among those of the rotation."""
        return self._rotation.harnesses.index(self._rotation(group))

    def _engine_now(self) -> EngineChoice | None:
        _, model = self.policy()
        if self._engine is None or not model:
            return self._engine
        return self._engine.model_copy(update={"model": model})


class _Following(HarborSessionFactory):
    """Each rollout asks the engine that `engine` names when it starts, and its harness gets its own arguments."""

    def __init__(
        self, engine: Callable[[], EngineChoice | None], agents: AgentKwargs, *args: Any, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._choose = engine
        self._agents = agents

    def action_for(self, seed: int | None) -> HarborAction:
        action: HarborAction = super().action_for(seed)
        given = dict(kwargs_of(action.harness, self._agents))
        chosen: HarborAction = action.model_copy(update={"engine": self._choose(), "agent_kwargs": given})
        return chosen
