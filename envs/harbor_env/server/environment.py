"""One episode: a task, one rollout, its result. Nothing that fails in it raises; what cannot be done is an error value.

Invariant: an episode holds at most one rollout, and ends it when it is closed.
"""

from __future__ import annotations

import harbor_env.light_openenv  # noqa: F401  # first: it keeps openenv's web interface out

# isort: split
import asyncio
import time
import uuid
from contextlib import nullcontext
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

from harbor_env.errors import GatewayError, HarborEnvError
from harbor_env.models import HarborAction, HarborObservation, HarborResult, HarborState, TaskRef
from harbor_env.outcome import Kind
from harbor_env.server.answer import answer, failed
from harbor_env.server.backend import Backend
from harbor_env.server.catalog import Chosen, split_type
from harbor_env.server.connections import CURRENT
from harbor_env.server.order import make_order
from harbor_env.server.settings import own_version
from harbor_env.server.worker import At

SHOWN = 500
"""Characters of each instruction where tasks are listed; one task alone is told whole."""


class HarborEnvironment(Environment[HarborAction, HarborObservation, HarborState]):  # type: ignore[misc]
    """An openenv environment over Harbor tasks; one instance per episode of a `Backend`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._backend = backend
        self._chosen: Chosen | None = None
        self._state = HarborState()
        self._session = ""
        self._began = 0.0
        self._running: asyncio.Future[dict[str, Any]] | None = None
        self._stepped = False
        self._cancelled = False
        self._phases: dict[str, float] = {}

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> HarborObservation:
        """Choose a task: by `task` (its name or index) or `index`, else by `seed`, in `split`. Ends a running step."""
        self.close()
        self._chosen, self._stepped, self._session = None, False, ""
        self._state = HarborState(episode_id=episode_id or str(uuid.uuid4()))
        try:
            task = kwargs.get("task")
            self._choose(str(kwargs.get("split") or ""), kwargs.get("index") if task is None else task, seed)
        except HarborEnvError as error:
            return HarborObservation(done=True, error=str(error))
        chosen = self._chosen
        return HarborObservation(
            instruction=chosen.task.instruction if chosen else "", task=_told(chosen) if chosen else None
        )

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> HarborObservation:
        return self.reset(seed=seed, episode_id=episode_id, **kwargs)

    def step(self, action: HarborAction, timeout_s: float | None = None, **kwargs: Any) -> HarborObservation:
        """The same as `step_async`, from a thread other than the server's."""
        if self._backend.loop is None:
            return HarborObservation(done=True, error="The server has not been started.")
        step = self.step_async(action, timeout_s, **kwargs)
        return asyncio.run_coroutine_threadsafe(step, self._backend.loop).result()

    async def step_async(
        self, action: HarborAction, timeout_s: float | None = None, **kwargs: Any
    ) -> HarborObservation:
        """Run the rollout. One step per episode; a second is an error value."""
        if self._stepped:
            return HarborObservation(done=True, error="This episode has had its step: reset first.")
        try:
            if self._chosen is None:
                if action.task is None and not action.split:
                    return HarborObservation(done=True, error="There is no task yet: reset first.")
                self._choose(action.split, action.task, None)
        except HarborEnvError as error:
            return HarborObservation(done=True, error=str(error))
        self._stepped, self._cancelled = True, False
        connection = CURRENT.get()
        with connection.stepping(self) if connection else nullcontext():
            result = HarborResult.model_validate(await self._rollout(action, timeout_s))
        self._end(result)
        return HarborObservation(
            done=True, reward=result.reward, rewards=result.rewards, result=result, task=self._told_briefly()
        )

    @property
    def state(self) -> HarborState:
        """What is known without asking the gateway."""
        if self._running is not None:
            self._state.seconds = round(time.monotonic() - self._began, 1)
        return self._state

    async def refresh(self) -> dict[str, Any]:
        """The state, with what the gateway has counted of the running rollout."""
        counts = await self._backend.counts(self._session) if self._running is not None else {}
        if counts:
            self._count(counts.get("turns", 0), counts.get("tokens", {}).get("sampled", 0), counts.get("last_tool", ""))
        told: dict[str, Any] = self.state.model_dump()
        return told

    def cancel(self) -> None:
        """End the rollout that runs; its result says so. Call it from the server's event loop."""
        if self._running is not None and not self._cancelled:
            self._cancelled = True
            self._running.cancel()

    def close(self) -> None:
        """End the rollout that runs, from any thread."""
        if self._backend.loop is not None and self._running is not None:
            self._backend.loop.call_soon_threadsafe(self.cancel)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name="harbor_env",
            description="Harbor tasks and unmodified coding agents, with the ids and log probabilities of every token.",
            version=own_version(),
        )

    def list_splits(self) -> list[dict[str, Any]]:
        splits = self._backend.catalog.splits
        return [{"name": name, "type": split_type(name), "num_tasks": len(tasks)} for name, tasks in splits.items()]

    def list_tasks(self, split: str) -> list[TaskRef]:
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        return len(self._tasks(split))

    def get_task(self, split: str, index: int) -> TaskRef:
        tasks = self._tasks(split)
        if not 0 <= index < len(tasks):
            raise IndexError(index)
        return _told(Chosen(split, index, tasks[index]))

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[TaskRef]:
        tasks = self._tasks(split)
        return [_told(Chosen(split, i, tasks[i]), SHOWN) for i in range(*slice(start, stop).indices(len(tasks)))]

    def _tasks(self, split: str) -> Any:
        try:
            return self._backend.catalog.split(split)
        except HarborEnvError as error:
            raise IndexError(str(error)) from error

    def _choose(self, split: str, task: str | int | None, seed: int | None) -> None:
        self._chosen = self._backend.catalog.choose(split, task, seed)
        self._state.phase, self._state.task = "ready", self._chosen.task.name

    def _told_briefly(self) -> TaskRef | None:
        return _told(self._chosen, 0) if self._chosen else None

    async def _rollout(self, action: HarborAction, timeout_s: float | None) -> dict[str, Any]:
        """The fields of the result, whatever happens."""
        assert self._chosen is not None
        self._began = time.monotonic()
        self._state.phase, self._state.harness, self._state.sandbox = "starting", action.harness, action.sandbox
        order = make_order(self._backend.config, action, self._chosen.task, f"r-{uuid.uuid4().hex}")
        if self._backend.pool.full:
            full = f"CAPACITY_REACHED: {self._backend.config.envs} rollouts run already."
            return answer(failed(order.spec, "sandbox", full), order.spec.out)
        try:
            gateway = await self._backend.gateway(action.sandbox)
        except HarborEnvError as error:
            kind: Kind = "engine" if isinstance(error, GatewayError) else "sandbox"
            return answer(failed(order.spec, kind, str(error)), order.spec.out)
        order = make_order(self._backend.config, action, self._chosen.task, order.spec.name, gateway)
        within = action.timeout or timeout_s or self._chosen.task.time_limit(action.agent_timeout)
        self._phases.clear()
        self._running = asyncio.ensure_future(self._backend.pool.run(order, self._watch, within=within))
        try:
            return await self._fair(await asyncio.shield(self._running))
        except asyncio.CancelledError:
            if not self._running.cancelled():  # the server ends this step; the rollout goes with it
                self._running.cancel()
                raise
            return answer(failed(order.spec, "cancelled", "The client went away."), order.spec.out)
        finally:
            self._running = None

    async def _fair(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result, unless the gateway died while the harness ran and the harness got no answer from it since."""
        start = self._phases.get("agent")
        if not result["ok"] or start is None:
            return result
        back = self._backend.outages.over(start, self._phases.get("verifier", time.monotonic()))
        if back is None:
            return result
        counts = await self._backend.counts(self._session)
        if time.monotonic() - counts.get("idle_s", float("inf")) > back:
            return result
        sentence = "The gateway died while the harness ran, and the harness did not go on when it was back."
        return {**result, "ok": False, "reward": None, "reason": {"kind": "capture", "sentence": sentence}}

    def _watch(self, at: At) -> None:
        self._state.phase, self._session = at.phase, at.session or self._session
        self._phases.setdefault(at.phase, time.monotonic())

    def _end(self, result: HarborResult) -> None:
        self._count(result.counts.get("turns", 0), result.counts.get("sampled_tokens", 0), self._state.last_tool)
        self._state.phase, self._state.step_count = "done", 1
        self._state.seconds = round(time.monotonic() - self._began, 1)

    def _count(self, turns: int, tokens: int, last_tool: str) -> None:
        self._state.turns, self._state.tokens, self._state.last_tool = turns, tokens, last_tool


def _told(chosen: Chosen, shown: int | None = None) -> TaskRef:
    task = chosen.task
    return TaskRef(
        split=chosen.split,
        index=chosen.index,
        name=task.name,
        instruction=task.instruction[:shown],
        level=task.level,
        tags=list(task.tags),
        secrets=list(task.secrets),
    )
