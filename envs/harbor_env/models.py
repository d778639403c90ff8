"""What travels between a client and the environment server: action, observation, state and result, typed.

Invariant: `reward` is None wherever there is no score, never zero; each turn's ids are in a result once.
"""

from __future__ import annotations

import harbor_env.light_openenv  # noqa: F401  # first: it keeps openenv's web interface out

# isort: split
from typing import TYPE_CHECKING, Any, Literal

from openenv.core.env_server.types import Action, Observation, State
from pydantic import BaseModel, ConfigDict, Field

from harbor_env.packing import unpack

if TYPE_CHECKING:
    from openenv.core.harness import TrainingTrace


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EngineChoice(_Wire):
    """The engine of one rollout, where it is not the server's own. `kind` as for `--engine`, without an argument."""

    kind: str = "vllm"
    url: str = ""
    model: str = ""
    api_key: str = ""


class Sampling(_Wire):
    """The pinned sampling distribution; what is None is the gateway's default (temperature 1 in training)."""

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = None
    max_tokens: int | None = Field(default=None, ge=1, description="Cap of every reply, in tokens.")
    seed: int | None = None


class Budgets(_Wire):
    """Where a rollout's model stops answering. None: no limit. Tokens are sampled ones, seconds from the first call."""

    max_calls: int | None = Field(default=None, ge=0)
    max_output_tokens: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class HarborAction(Action):  # type: ignore[misc]
    """Run one harness on the episode's task in one sandbox.

    `agent_timeout` (seconds) replaces the task's own; `timeout` bounds the whole step, set-up and verifier included.
    `warm` forks a harness that can be forked, in the local sandbox.
    `task` and `split` name the task where no `reset` did, as over plain HTTP, whose requests share no episode.
    """

    harness: str = "mini-swe-agent"
    sandbox: str = "local"
    engine: EngineChoice | None = None
    sampling: Sampling = Field(default_factory=Sampling)
    budgets: Budgets = Field(default_factory=Budgets)
    reward_key: str = ""
    purpose: Literal["train", "eval"] = "train"
    history: Literal["tree", "as_sent"] = "tree"
    template_kwargs: dict[str, Any] = Field(default_factory=dict)
    agent_timeout: float | None = Field(default=None, gt=0)
    agent_kwargs: dict[str, Any] = Field(default_factory=dict)
    timeout: float | None = Field(default=None, gt=0)
    warm: bool = False
    task: str | int | None = None
    split: str = ""


class TaskRef(_Wire):
    """One task as the Task API tells it: `index` is its place in the split. `secrets` its verifier needs, by name."""

    split: str
    index: int
    name: str
    instruction: str = ""
    level: int | None = None
    tags: list[str] = Field(default_factory=list)
    secrets: list[str] = Field(default_factory=list)


class FailureReason(_Wire):
    """Why there is no score. `kind` is stable; sandbox, engine, capture and cancelled say nothing about the policy."""

    kind: Literal["sandbox", "agent", "verifier", "engine", "capture", "timeout", "cancelled", "task"]
    sentence: str
    retryable: bool = Field(default=False, description="A sandbox was refused for want of capacity, rate or quota.")


class HarborResult(_Wire):
    """What a rollout came to. `reward` is None exactly when `ok` is False; `rewards` is all the verifier wrote.

    `seconds` per phase; `counts` and `findings` are the session's; `log_tails` are the ends of what was
    printed, by harness and verifier; `planted` is what the harness left where it is graded, removed and not counted.
    `trace` and `trajectory` (the harness's own, ATIF) are packed JSON; the methods read them.
    """

    id: str
    task: str
    harness: str
    sandbox: str
    ok: bool
    reward: float | None = None
    reason: FailureReason | None = None
    flags: list[str] = Field(default_factory=list)
    rewards: dict[str, float] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    findings: dict[str, int] = Field(default_factory=dict)
    atif: dict[str, Any] = Field(default_factory=dict)
    level: str = ""
    log_tails: dict[str, str] = Field(default_factory=dict)
    planted: list[str] = Field(default_factory=list)
    trace: str = ""
    trajectory: str = ""

    def compact_trace(self) -> dict[str, Any] | None:
        """The session's trace, every turn once; None where nothing was captured."""
        return unpack(self.trace) if self.trace else None

    def training_trace(self) -> TrainingTrace:
        """OpenEnv's trace, expanded here; without turns where nothing was captured or no engine gave ids."""
        from openenv.core.harness import TrainingTrace

        from harbor_env.gateway.export.trace import expand

        compact = self.compact_trace()
        return expand(compact) if compact else TrainingTrace(turns=[])

    def harness_trace(self) -> dict[str, Any] | None:
        """What the harness itself recorded; None where it records nothing."""
        return unpack(self.trajectory) if self.trajectory else None


class HarborObservation(Observation):  # type: ignore[misc]
    """After `reset`: the task and its instruction. After `step`: done, the reward and the result.

    `error` is one sentence where what was asked could not be done at all; then there is no result and no reward.
    """

    instruction: str = ""
    task: TaskRef | None = None
    rewards: dict[str, float] = Field(default_factory=dict)
    result: HarborResult | None = None
    error: str = ""


class HarborState(State):  # type: ignore[misc]
    """Where an episode is. `phase` is idle, ready, then as the rollout goes, then done; `seconds` since the step began.

    `turns`, `tokens` (sampled) and `last_tool` are the session's so far.
    """

    phase: str = "idle"
    task: str = ""
    harness: str = ""
    sandbox: str = ""
    turns: int = 0
    tokens: int = 0
    last_tool: str = ""
    seconds: float = 0.0
