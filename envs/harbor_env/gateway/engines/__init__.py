"""What samples: token ids in, token ids and log probabilities out. This package does IO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harbor_env.gateway.types import Call, Finding, Generation, Ids, Level


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What a turn is sampled with. `max_tokens` is already clamped to the window. `seed` None: the engine's choice."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One generation. `call` is the decoded request: a scripted policy and an engine below `tokens` read it;
    `call.messages` is the whole conversation. `turn_index` is how many turns this path already has."""

    id: str
    prompt_ids: Ids
    sampling: SamplingParams
    stop_ids: tuple[int, ...]
    call: Call
    turn_index: int = 0


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a probe measured. `max_model_len` is the window in tokens, 0 where the engine does not say. `route` says
    which call is used and why."""

    level: Level
    model: str
    max_model_len: int
    route: str = ""
    findings: tuple[Finding, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """Cancelling the task that awaits `generate` aborts the generation at the engine. Raises `EngineError` only.

    `probe` measures and grades; it raises `EngineError` while the engine is down, and is called again later.
    """

    kind: str

    async def probe(self) -> EngineInfo: ...
    async def generate(self, request: EngineRequest) -> Generation: ...
    async def close(self) -> None: ...
