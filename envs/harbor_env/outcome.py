"""What a finished trial and its capture amount to: a score, or the reason why there is none.

Pure. Invariant: `reward` is None exactly when `ok` is False, so a failure can never be read as a zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from harbor_env.atif import NO_ATIF, AtifCheck
from harbor_env.reward import Selected
from harbor_env.sandboxes.capacity import lacks_capacity

Kind = Literal["sandbox", "agent", "verifier", "engine", "capture", "timeout", "cancelled", "task"]
Phase = Literal["none", "sandbox", "setup", "agent", "verifier"]

INFRASTRUCTURE: frozenset[Kind] = frozenset({"sandbox", "engine", "capture", "cancelled"})
"""Failures that say nothing about the policy: the same rollout may be run again."""

ENGINE_CODES = ("engine_error", "engine_down", "engine_timeout", "rate_limited", "internal")
BUDGET = "budget_"
"""Opens the code of every finding that says that a limit of the session was reached."""
PHASES: dict[Phase, tuple[Kind, str]] = {
    "none": ("task", "The task could not be loaded"),
    "sandbox": ("sandbox", "The sandbox did not start"),
    "setup": ("sandbox", "The harness could not be set up in the sandbox"),
    "agent": ("agent", "The harness failed"),
    "verifier": ("verifier", "The verifier failed"),
}
SANDBOX_ERRORS = frozenset(
    {"SandboxError", "SandboxLikelyOutOfMemoryError", "MemoryLimitExceededError", "EnvironmentStartTimeoutError"}
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why there is no score: `kind` is stable, `sentence` is for people.

    `retryable` says that a sandbox was refused for want of capacity, rate or quota: waiting may mend it.
    """

    kind: Kind
    sentence: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """What a rollout came to. `reward` is None exactly when `ok` is False; `rewards` is all the verifier wrote.

    `seconds` per phase; `counts` and `findings` are the session's; `log_tail` is the end of what a failed harness said.
    `planted` is what the harness left where it is graded, which was removed before grading.
    `trace` and `rows` are files below the rollout's `out`, "" where nothing was captured. `session` is what exports
    call the session. `tries` counts how often a batch ran this rollout, `earlier` says why the tries before failed.
    """

    name: str
    task: str
    harness: str
    sandbox: str
    ok: bool
    reward: float | None
    reason: Reason | None = None
    flags: tuple[str, ...] = ()
    rewards: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    atif: AtifCheck = NO_ATIF
    level: str = ""
    log_tail: str = ""
    trace: str = ""
    rows: str = ""
    session: str = ""
    model: str = ""
    tries: int = 1
    earlier: tuple[Reason, ...] = ()
    planted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """What Harbor says of a trial: the last phase it reached, and the exception that ended it, if any."""

    phase: Phase
    error_type: str = ""
    error: str = ""

    @property
    def timed_out(self) -> bool:
        return self.error_type == "AgentTimeoutError"


NOT_RUN = Ran("none")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`flags` are what a reader of a score should know: `timeout`, `agent_error`, `budget`, and what the agent planted
    where it is graded: `forged_reward`, `planted_tests`."""

    ok: bool
    reward: float | None
    reason: Reason | None = None
    flags: tuple[str, ...] = ()


def judge(ran: Ran, selected: Selected, turns: int, findings: Mapping[str, int], engine_said: str = "") -> Outcome:
    """Score or reason. A harness that timed out or exited badly after real turns keeps the reward its work earned.

    `engine_said` is how the engine put its last failure.
    """
    engine_failures = _engine_failures(findings, engine_said)
    if ran.phase in ("sandbox", "verifier") and lacks_capacity(ran.error_type, ran.error * (ran.phase == "sandbox")):
        return _failed("sandbox", "The backend has no room for a sandbox just now", ran.error, retryable=True)
    if ran.phase in ("none", "sandbox", "setup"):
        return _failed(*PHASES[ran.phase], ran.error)
    if ran.error_type in SANDBOX_ERRORS:
        return _failed("sandbox", "The sandbox failed", ran.error)
    if turns == 0 and engine_failures:
        return _failed("engine", "No model call succeeded", engine_failures)
    if turns == 0:
        return _failed("capture", "The harness made no model call through the gateway", ran.error)
    if ran.error_type and not ran.timed_out and engine_failures:
        return _failed("engine", "The harness gave up after the engine failed", engine_failures)
    if selected.value is not None:
        return Outcome(True, selected.value, flags=tuple(_flags(ran, findings)))
    if ran.timed_out:
        return _failed("timeout", "The harness ran out of time", selected.problem)
    if ran.error_type:
        return _failed(*PHASES[ran.phase], ran.error)
    return _failed("verifier", selected.problem)


def _engine_failures(findings: Mapping[str, int], said: str) -> str:
    codes = ", ".join(code for code in ENGINE_CODES if findings.get(code))
    return f"{codes}: {said}" if codes and said else codes


def _flags(ran: Ran, findings: Mapping[str, int]) -> Iterator[str]:
    if ran.error_type:
        yield "timeout" if ran.timed_out else "agent_error"
    if any(code.startswith(BUDGET) for code in findings):
        yield "budget"


def _failed(kind: Kind, sentence: str, cause: str = "", *, retryable: bool = False) -> Outcome:
    told = one_line(f"{sentence.rstrip('.')}: {cause}" if cause else sentence)
    return Outcome(False, None, Reason(kind, told, retryable))


def one_line(text: str, limit: int = 300) -> str:
    """The text on one line; the end is kept as well as the beginning where it is long, for causes come last."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit // 3]} ... {flat[-2 * limit // 3 :]}"
