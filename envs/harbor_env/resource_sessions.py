"""Rollouts on environment servers as openenv's resource sessions: what TRL's `HarnessRolloutWorker` consumes.

    HarnessRolloutWorker(harness_session_factory=partial(HarborSessionFactory, ["http://a:8000", "http://b:8000"],
                         split="train", harness="mini-swe-agent"), ...)

Invariant: a rollout that failed is a session without a reward (`env_reward` None), never an exception and never a zero;
what raises is a session that could not be had at all.
"""

from __future__ import annotations

import harbor_env.light_openenv  # noqa: F401  # first: it keeps openenv's web interface out

# isort: split
import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import (
    ResourceSession,
    ResourceSessionFactory,
    ToolResult,
    TrainingTrace,
    VerifyResult,
)
from pydantic import ValidationError

from harbor_env.client import HarborEnv
from harbor_env.models import FailureReason, HarborAction, HarborObservation, HarborResult
from harbor_env.models import Sampling as PinnedSampling
from harbor_env.outcome import INFRASTRUCTURE, one_line
from harbor_env.spread import Ask, Opened, Spread

NEUTRAL = {"min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
"""Sampling options that may be named only to say that they change nothing."""

OTHER_VERSION = "answers in a form this version does not know; its server is of another"


class HarborSession(ResourceSession):  # type: ignore[misc]
    """One rollout, running since it was created. Its methods may be called from any thread."""

    def __init__(self, opened: Opened, running: Future[HarborResult], stop: Callable[[], object]) -> None:
        self._opened = opened
        self._running = running
        self._stop = stop

    @property
    def url(self) -> str:
        """The server the rollout was first given to."""
        return self._opened.url

    @property
    def result(self) -> HarborResult | None:
        """What the rollout came to, once it has ended."""
        ended = self._running.done() and not self._running.cancelled()
        return self._running.result() if ended else None

    def initial_messages(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": self._opened.observation.instruction}]

    def list_tools(self) -> list[Tool]:
        """None: the harness brings its own."""
        return []

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(error=f"The harness calls its own tools; {name!r} cannot be called from outside.")

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Wait for the rollout's end; 0 where it scored and its harness ended well, else 1.

        TimeoutError: the harness ran out of its time, and what it did until then can be fetched; or `timeout_s` has
        passed, and the rollout is ended without a trace. RuntimeError: the session was closed meanwhile.
        """
        try:
            result = self._running.result(timeout_s)
        except CancelledError:
            raise RuntimeError("The session was closed before its rollout ended.") from None
        except TimeoutError:
            self.close()
            raise TimeoutError(f"The rollout did not end within {timeout_s} s.") from None
        if "timeout" in result.flags or (result.reason and result.reason.kind == "timeout"):
            raise TimeoutError("The harness ran out of time.")
        return 0 if result.ok and not result.flags else 1

    def fetch_training_trace(self) -> TrainingTrace:
        """Every turn once, path by path; without turns where nothing was captured."""
        return self.result.training_trace() if self.result else TrainingTrace(turns=[])

    def fetch_proxy_trace(self) -> list[dict[str, Any]]:
        """The same as openenv's trace entries."""
        entries: list[dict[str, Any]] = self.fetch_training_trace().to_trace_entries()
        return entries

    def verify(self, transcript: Sequence[Mapping[str, Any]], final_state: Any | None = None) -> VerifyResult:
        """The verifier's reward, None where there is none; counts, findings and seconds as metrics."""
        result = self.result
        if result is None:
            return VerifyResult(env_reward=None, done=False)
        metrics = {
            "ok": result.ok,
            "rewards": result.rewards,
            "counts": result.counts,
            "findings": result.findings,
            "seconds": result.seconds,
            "flags": result.flags,
            "reason": result.reason.model_dump() if result.reason else None,
            "harness": result.harness,
        }
        artifacts = {"id": result.id, "task": result.task, "log_tails": result.log_tails}
        return VerifyResult(env_reward=result.reward, done=True, metrics=metrics, artifacts=artifacts)

    def close(self) -> None:
        """End the rollout if it runs, and free its slot. Whoever waits for it is told."""
        self._stop()


class HarborSessionFactory(ResourceSessionFactory[HarborSession]):  # type: ignore[misc]
    """Sessions on one server or spread over several: each goes to the one that has fewest of ours.

    `harness` is a name, or a function of the seed, so that every rollout of a group uses the same. `sampling` is the
    policy's, as TRL gives it; ValueError where it truncates. `retries` runs a rollout again, in a fresh session, where
    it failed for no fault of the policy. `patience` is how many seconds to wait for a free slot. `action` are further
    fields of `HarborAction`: budgets, engine, reward_key, agent_timeout and so on.
    """

    def __init__(
        self,
        server_url: str | Sequence[str],
        *,
        split: str = "",
        harness: str | Callable[[int | None], str] = "mini-swe-agent",
        sandbox: str = "local",
        sampling: Mapping[str, Any] | None = None,
        admin_key: str = "",
        retries: int = 0,
        patience: float = 600.0,
        **action: Any,
    ) -> None:
        urls = (server_url,) if isinstance(server_url, str) else tuple(server_url)
        self._split = split
        self._harness = harness
        self._retries = retries
        self._spread = Spread(urls, lambda url: HarborEnv(url, admin_key=admin_key), patience)
        self._action = HarborAction(
            sandbox=sandbox,
            sampling=pinned(sampling or {}),
            **action,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> HarborSession:
        """Start a rollout. `task` with `task`, `index` or `split` in it names one; anything else leaves it to the seed.

        Raises RuntimeError or ConnectionError where no server can run it.
        """
        action = self.action_for(seed)
        return self.start(task, seed, episode_id, lambda: action)

    def start(
        self, task: Any, seed: int | None, episode_id: str | None, action: Callable[[], HarborAction]
    ) -> HarborSession:
        """As `create`, but what it does is asked of `action`, at each try, when a server has room for it."""
        named = {key: task[key] for key in ("task", "index", "split") if key in task} if isinstance(task, dict) else {}
        ask: Ask = {"split": self._split, **named, "seed": seed, "episode_id": episode_id}
        loop = self._background()
        opened = asyncio.run_coroutine_threadsafe(self._open(ask), loop).result()
        running = asyncio.run_coroutine_threadsafe(self._run(opened, ask, action), loop)
        return HarborSession(opened, running, running.cancel)

    def action_for(self, seed: int | None) -> HarborAction:
        """What a rollout with this seed is started with."""
        harness = self._harness if isinstance(self._harness, str) else self._harness(seed)
        action: HarborAction = self._action.model_copy(update={"harness": harness})
        return action

    async def _open(self, ask: Ask) -> Opened:
        try:
            return await self._spread.open(ask)
        except ValidationError as error:
            raise RuntimeError(f"A server {OTHER_VERSION}: {one_line(str(error))}") from error

    async def _run(self, opened: Opened, ask: Ask, action: Callable[[], HarborAction]) -> HarborResult:
        for left in range(self._retries, -1, -1):
            result = await self._step(opened, action())
            if left == 0 or result.reason is None or result.reason.kind not in INFRASTRUCTURE:
                break
            try:
                opened = await self._open(ask)
            except (RuntimeError, OSError):
                break
        return result

    async def _step(self, opened: Opened, action: HarborAction) -> HarborResult:
        try:
            step = await opened.env.step(action)
            return _result(step.observation, opened, action)
        except (RuntimeError, OSError) as error:
            return _unheard(opened, action, str(error))
        except ValidationError as error:
            return _unheard(opened, action, f"{opened.url} {OTHER_VERSION}: {one_line(str(error))}")
        finally:
            await self._spread.close(opened)

    def _background(self) -> asyncio.AbstractEventLoop:
        """The event loop of all sessions of this factory, in a thread that ends with the process."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="harbor-sessions", daemon=True).start()
            return self._loop


def pinned(sampling: Mapping[str, Any]) -> PinnedSampling:
    """A trainer's sampling as a session pins it. ValueError: it holds something that cannot be pinned."""
    changed = {name for name, neutral in NEUTRAL.items() if sampling.get(name, neutral) != neutral}
    kept = {name: value for name, value in sampling.items() if name not in NEUTRAL}
    unknown = changed | (set(kept) - set(PinnedSampling.model_fields))
    if unknown:
        raise ValueError(f"The gateway cannot pin {', '.join(sorted(unknown))}.")
    return PinnedSampling(**kept)


def _result(observation: HarborObservation, opened: Opened, action: HarborAction) -> HarborResult:
    return observation.result or _unheard(opened, action, observation.error)


def _unheard(opened: Opened, action: HarborAction, sentence: str) -> HarborResult:
    task = opened.observation.task
    reason = FailureReason(kind="sandbox", sentence=sentence)
    return HarborResult(
        id="", task=task.name if task else "", harness=action.harness, sandbox=action.sandbox, ok=False, reason=reason
    )
