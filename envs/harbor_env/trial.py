"""Harbor's own trial, run once for one session: the only file that builds a `TrialConfig`.

Invariant: once a harness has begun nothing is tried again, because a second attempt in one session would mix two
rollouts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_env.harnesses.wiring import Connection, agent_config  # first: it quietens litellm before Harbor imports it

# isort: split
from harbor.agents.installed.base import BaseInstalledAgent
from harbor.models.trial.config import TaskConfig, TrialConfig, VerifierConfig
from harbor.models.trial.result import TimingInfo, TrialResult
from harbor.trial.hooks import TrialEvent, TrialHookEvent
from harbor.trial.trial import Trial

from harbor_env.errors import SandboxError, UsageError
from harbor_env.forgery import Planted
from harbor_env.gateway_client import OpenSession
from harbor_env.grading import VERIFIER, note_tests, planted
from harbor_env.harnesses import Harness
from harbor_env.harnesses.baking import warm_start
from harbor_env.outcome import Phase, Ran
from harbor_env.sandboxes import environment_config
from harbor_env.sandboxes.backends import check_reach, check_ready, pace_of
from harbor_env.sandboxes.capacity import lacks_capacity
from harbor_env.sandboxes.pace import StartRate, place_of
from harbor_env.sandboxes.places import places
from harbor_env.tasks import check_secrets, load_task

if TYPE_CHECKING:
    from harbor_env.rollout import RolloutSpec

WORTH_TELLING = 0.5
"""Seconds a sandbox waited for its turn, from which on that is a phase of its own, `queue`."""

STARTS: dict[TrialEvent, Phase] = {
    TrialEvent.ENVIRONMENT_START: "sandbox",
    TrialEvent.AGENT_START: "agent",
    TrialEvent.VERIFICATION_START: "verifier",
}


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """How far the trial came, what the verifier wrote, seconds per phase, what the agent left where it grades,
    and why it was started cold where it was to be warm."""

    ran: Ran
    rewards: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    planted: Planted = field(default_factory=Planted)
    cold: str = ""

    @property
    def refused(self) -> bool:
        """Whether no sandbox was made because the backend had no room for one."""
        return self.ran.phase == "sandbox" and lacks_capacity(self.ran.error_type, self.ran.error)


async def run_trial(
    spec: RolloutSpec, harness: Harness, session: OpenSession, at: Callable[[Phase], None]
) -> TrialFacts:
    """Run the task once; failures inside it are in the facts. `at` hears of phases as they begin.

    A sandbox that is refused for want of capacity is asked for again, a bounded number of times: no harness has begun.
    Raises what Harbor raises for a task or a configuration it cannot load, SandboxError and TaskError for what is
    lacking here, and CancelledError.
    """
    await asyncio.to_thread(check_before, spec.sandbox, spec.task)
    pace = pace_of(spec.sandbox, os.environ)
    facts = await _run_once(spec, harness, session, at, pace)
    for attempt in range(pace.tries - 1):
        if not facts.refused:
            return facts
        await asyncio.sleep(pace.wait_before(attempt))
        shutil.rmtree(spec.out / "logs" / spec.name, ignore_errors=True)
        facts = await _run_once(spec, harness, session, at, pace)
    if facts.refused:
        return replace(facts, ran=replace(facts.ran, error=f"{facts.ran.error} (asked {pace.tries} times)"))
    return facts


def check_before(sandbox: str, task: Path) -> None:
    """SandboxError or TaskError where a rollout cannot end well, for want of something known before it begins."""
    if sandbox != "local":  # the local one tells why it does not start, and trying that out first takes as long
        with _of_the_sandbox():
            check_ready(sandbox, os.environ, Path.home())
    check_secrets([load_task(task, within=Path("/"))], os.environ)


@contextmanager
def _of_the_sandbox() -> Iterator[None]:
    """What is wrong with the choice of a sandbox is the sandbox's failure: mended, the rollout may be run again."""
    try:
        yield
    except UsageError as error:
        raise SandboxError(str(error)) from error


async def _run_once(
    spec: RolloutSpec, harness: Harness, session: OpenSession, at: Callable[[Phase], None], pace: StartRate
) -> TrialFacts:
    trial = await Trial.create(_trial_config(spec, harness, session))
    if isinstance(trial.agent, BaseInstalledAgent):  # any other runs beside the gateway's caller, not in the sandbox
        with _of_the_sandbox():
            check_reach(spec.sandbox, spec.gateway.public or spec.gateway.url)
    async with place_of(spec.sandbox, pace, places().cache) as place:

        async def hear(event: TrialHookEvent) -> None:
            at(STARTS[event.event])
            if event.event is TrialEvent.ENVIRONMENT_START:
                await place.come()
            elif event.event is TrialEvent.AGENT_START:
                place.started()
                await note_tests(trial.agent_environment, trial.paths.trial_dir)

        for event in STARTS:
            trial.add_hook(event, hear)
        facts = _facts(await trial.run())
        queued = {"queue": round(place.waited, 3)} if place.waited >= WORTH_TELLING else {}
    cold = getattr(trial.agent_environment, "cold", "")
    return replace(facts, seconds={**facts.seconds, **queued}, planted=planted(trial.paths.trial_dir), cold=cold)


def _trial_config(spec: RolloutSpec, harness: Harness, session: OpenSession) -> TrialConfig:
    root = spec.gateway.public or spec.gateway.url
    connection = Connection(
        root=root,
        session_url=f"{root}/sessions/{session.key}",
        key=session.key,
        model=spec.gateway.model,
        window=spec.gateway.window,
        timeout=spec.agent_timeout,
        kwargs=spec.agent_kwargs,
        env=spec.agent_env,
    )
    warm = warm_start(harness) if spec.warm and spec.sandbox == "local" else {}
    return TrialConfig(
        task=TaskConfig(path=spec.task),
        trial_name=spec.name,
        trials_dir=spec.out / "logs",
        agent=agent_config(harness, connection),
        verifier=VerifierConfig(import_path=VERIFIER),
        environment=environment_config(spec.sandbox, gateway=root, layers=spec.layers, **warm, **spec.sandbox_kwargs),
    )


def _facts(result: TrialResult) -> TrialFacts:
    timings: dict[Phase, TimingInfo | None] = {
        "sandbox": result.environment_setup,
        "setup": result.agent_setup,
        "agent": result.agent_execution,
        "verifier": result.verifier,
    }
    reached: Phase = "none"
    for phase, timing in timings.items():
        if timing is not None and timing.started_at is not None:
            reached = phase
    seconds: dict[str, float] = {
        name: took for name, timing in timings.items() if (took := _seconds(timing)) is not None
    }
    rewards = dict(result.verifier_result.rewards or {}) if result.verifier_result else {}
    error = next(iter(result._recorded_exceptions()), None)
    if error is None:
        return TrialFacts(Ran(reached), rewards, seconds)
    verifier = result.verifier
    if reached == "verifier" and verifier and verifier.started_at and error.occurred_at <= verifier.started_at:
        reached = "agent"
    return TrialFacts(Ran(reached, error.exception_type, error.exception_message), rewards, seconds)


def _seconds(timing: TimingInfo | None) -> float | None:
    if timing is None or timing.started_at is None or timing.finished_at is None:
        return None
    took: float = (timing.finished_at - timing.started_at).total_seconds()
    return round(took, 3)
