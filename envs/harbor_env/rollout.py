"""One task, one harness, one sandbox: a reward and a trace, or the reason why there is none.

Invariant: `run_rollout` raises nothing but CancelledError, one attempt is one gateway session, and no secret of that
session is in anything it leaves behind.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from harbor_env.atif import NO_ATIF, AtifCheck, compare
from harbor_env.capture import Capture, fetch_capture, read_json
from harbor_env.errors import EngineError, GatewayError, HarborEnvError, SandboxError
from harbor_env.forgery import Planted
from harbor_env.gateway_client import GatewayClient, OpenSession
from harbor_env.harnesses import Harness, find
from harbor_env.outcome import NOT_RUN, Kind, Outcome, Phase, Ran, Reason, RolloutResult, judge, one_line
from harbor_env.reward import select_reward
from harbor_env.scrub import newest_tail, scrub_folder, scrub_text

log = logging.getLogger(__name__)

COLD_START = "cold_start"
"""The finding of a rollout whose harness was to be started warm and was not; the log says why."""

Progress = Callable[[str], None]
"""Told the name of each phase as it begins: session, sandbox, setup, agent, verifier, capture."""
Opened = Callable[[OpenSession], None]
"""Told of the session as soon as it is open."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where the gateway listens, its admin key, and what is known of its engine: `window` in tokens, 0 if unknown.

    `level` is "" while the engine has not been reached. `public` is the gateway's address for harnesses in a sandbox
    elsewhere, "" where they use `url` too. `patience` is for how many seconds it is asked again where it does not
    answer: somebody starts it again when it dies.
    """

    url: str
    admin_key: str = ""
    model: str = "policy"
    window: int = 0
    level: str = ""
    tito: str = ""
    public: str = ""
    patience: float = 0.0


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """Everything one rollout is made from. `name` is its id and its file name; times are in seconds.

    `layers` are baked harnesses to mount. `agent_timeout` None keeps the task's own; `timeout` bounds the whole
    rollout, verifier included. `warm` forks a harness that can be forked, in the local sandbox. `session` is what else
    the session is opened with: template_kwargs, history, engine.
    """

    name: str
    task: Path
    harness: str
    gateway: GatewayAddress
    out: Path
    sandbox: str = "local"
    layers: tuple[Path, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, float] = field(default_factory=dict)
    purpose: Literal["train", "eval"] = "train"
    session: Mapping[str, Any] = field(default_factory=dict)
    agent_timeout: float | None = None
    timeout: float | None = None
    agent_kwargs: Mapping[str, Any] = field(default_factory=dict)
    agent_env: Mapping[str, str] = field(default_factory=dict)
    sandbox_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reward_key: str = ""
    warm: bool = False


@dataclass(slots=True)
class _Attempt:
    """What is known so far, so that a failure at any point still tells all of it."""

    spec: RolloutSpec
    began: float
    session: OpenSession | None = None
    ran: Ran = NOT_RUN
    rewards: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    planted: Planted = field(default_factory=Planted)
    cold: str = ""
    capture: Capture = field(default_factory=Capture)
    atif: AtifCheck = NO_ATIF

    @property
    def logs(self) -> Path:
        return self.spec.out / "logs" / self.spec.name

    @property
    def public_session(self) -> str:
        from harbor_env.gateway.stored_export import public_id  # here, for it brings numpy

        return public_id(self.session.id) if self.session else ""

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.session.secrets if self.session else ()

    def clean(self, text: str) -> str:
        """Text without the session's secrets: what failed often quotes its command and its URL."""
        return scrub_text(text, self.secrets)

    def reason(self, kind: Kind, text: str) -> Reason:
        return Reason(kind, one_line(self.clean(text)))

    def result(self, outcome: Outcome) -> RolloutResult:
        spec, capture = self.spec, self.capture
        self.seconds["total"] = round(time.monotonic() - self.began, 3)
        return RolloutResult(
            name=spec.name,
            task=spec.task.name,
            harness=spec.harness,
            sandbox=spec.sandbox,
            ok=outcome.ok,
            reward=outcome.reward,
            reason=outcome.reason,
            flags=(*outcome.flags, *self.planted.flags),
            planted=tuple(self.clean(said) for said in self.planted.said),
            rewards=self.rewards,
            seconds=self.seconds,
            counts=capture.counts,
            findings={**capture.findings, **({COLD_START: 1} if self.cold else {})},
            atif=self.atif,
            level=(self.session.level if self.session else "") or spec.gateway.level,
            log_tail="" if outcome.ok else self.clean(newest_tail(self.logs / "agent")),
            trace=capture.trace,
            rows=capture.rows,
            session=self.public_session,
            model=spec.gateway.model,
        )


async def run_rollout(
    spec: RolloutSpec, progress: Progress = lambda phase: None, opened: Opened = lambda session: None
) -> RolloutResult:
    """Run one attempt. Never raises, except CancelledError after the sandbox is gone."""
    attempt = _Attempt(spec, time.monotonic())
    limit = asyncio.timeout(spec.timeout)
    try:
        async with limit:
            return await _run(attempt, progress, opened)
    except GatewayError as error:
        kind: Literal["engine", "capture"] = "engine" if isinstance(error, EngineError) else "capture"
        reason = attempt.reason(kind, str(error))
    except HarborEnvError as error:
        reason = attempt.reason("sandbox" if isinstance(error, SandboxError) else "task", str(error))
    except Exception as error:  # noqa: BLE001 - a failed rollout is a value, whatever failed
        if not limit.expired():
            log.error("rollout %s failed\n%s", spec.name, attempt.clean(traceback.format_exc()))
        reason = _overdue(attempt) if limit.expired() else _unforeseen(attempt, error)
    return attempt.result(Outcome(False, None, reason))


def _overdue(attempt: _Attempt) -> Reason:
    return Reason("sandbox", f"The rollout did not end within {attempt.spec.timeout:g} s (phase {attempt.ran.phase}).")


def _unforeseen(attempt: _Attempt, error: Exception) -> Reason:
    early = attempt.ran.phase == "none"
    return attempt.reason("task" if early else "sandbox", f"{type(error).__name__}: {error}")


async def _run(attempt: _Attempt, progress: Progress, opened: Opened) -> RolloutResult:
    spec = attempt.spec
    harness = find(spec.harness)
    shutil.rmtree(attempt.logs, ignore_errors=True)
    gateway = spec.gateway
    async with GatewayClient(gateway.url, gateway.admin_key, patience=gateway.patience) as client:
        progress("session")
        attempt.session = await client.open(_session_options(spec))
        opened(attempt.session)
        try:
            await _run_trial(attempt, harness, attempt.session, progress)
        finally:
            if attempt.logs.is_dir():
                await asyncio.to_thread(scrub_folder, attempt.logs, attempt.secrets)
        progress("capture")
        attempt.capture = await fetch_capture(client, attempt.session, spec.out, spec.name)
    attempt.atif = _check_atif(attempt)
    selected = select_reward(attempt.rewards, spec.reward_key)
    capture = attempt.capture
    return attempt.result(judge(attempt.ran, selected, capture.turns, capture.findings, capture.engine_said))


async def _run_trial(attempt: _Attempt, harness: Harness, session: OpenSession, progress: Progress) -> None:
    """Harbor's own trial, once. Harbor is imported here, when there is something to run."""
    from harbor_env.trial import run_trial

    def at(phase: Phase) -> None:
        attempt.ran = Ran(phase)
        progress(phase)

    facts = await run_trial(attempt.spec, harness, session, at)
    attempt.ran = replace(facts.ran, error=attempt.clean(facts.ran.error))
    attempt.rewards = facts.rewards
    attempt.planted = facts.planted
    attempt.cold = facts.cold
    if facts.cold:
        log.warning("rollout %s: %s", attempt.spec.name, attempt.clean(facts.cold))
    attempt.seconds |= facts.seconds


def _session_options(spec: RolloutSpec) -> dict[str, Any]:
    metadata = {"rollout": spec.name, "task": spec.task.name, "harness": spec.harness, "sandbox": spec.sandbox}
    return {
        **spec.session,
        "metadata": metadata,
        "sampling": dict(spec.sampling),
        "budget": dict(spec.budget),
        "purpose": spec.purpose,
    }


def _check_atif(attempt: _Attempt) -> AtifCheck:
    trajectory = read_json(attempt.logs / "agent" / "trajectory.json")
    return compare(trajectory, attempt.capture.calls, attempt.capture.turns)
