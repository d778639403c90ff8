"""Measuring an engine before its tokens are trusted.

Invariant: an engine is called trainable at a temperature only after its log probabilities were seen to follow it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineInfo, EngineRequest, SamplingParams
from harbor_env.gateway.engines.connection import Connection, RefusedError
from harbor_env.gateway.engines.sample import BEFORE_SAMPLERS, Sample, accepted
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.types import Call, Finding, Generation, Ids, Message

HOT = 2.0
"""The second temperature of the probe; gaps between processed log probabilities shrink by this factor."""
TOP = 5
MIN_GAP = 0.05
SCALING_UNKNOWN = "logprob_scaling_unknown"
PLAIN_PROMPT: Ids = tuple(range(40, 56))
QUESTION = Message("user", "Say one word.")
ROUTE_MISSING = frozenset({403, 404, 405, 501})
"""Statuses by which an engine says that it has no such route, or that the route is switched off."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What two samples showed: whether log probabilities follow the temperature, and what to tell the user."""

    processed: bool
    findings: tuple[Finding, ...] = ()


async def grade(ask: Callable[[float], Awaitable[Sample]], prompt_ids: Ids) -> Grade:
    """Grade an engine that returned ids. `ask(temperature)` samples one token after `prompt_ids`, with alternatives.

    Raises `EngineError` where ids or log probabilities are missing or cannot be those of one distribution.
    """
    cool, hot = await ask(1.0), await ask(HOT)
    for sample in (cool, hot):
        accepted(sample, SamplingParams(1), processed=True)
        if sample.prompt_ids is not None and list(sample.prompt_ids) != list(prompt_ids):
            raise EngineError("engine_error", "the engine changed the prompt's token ids")
    factor = scaling(cool.top, hot.top)
    if factor is None:
        detail = "the engine shows no alternatives to measure with; trainable at temperature 1 only"
        return Grade(False, (Finding(SCALING_UNKNOWN, detail),))
    if abs(factor - HOT) < 0.1:
        return Grade(True)
    detail = f"gaps shrink {factor:.2f} times at temperature {HOT:g}; trainable at temperature 1 only"
    return Grade(False, (Finding(BEFORE_SAMPLERS, detail),))


def scaling(cool: Mapping[int, float], hot: Mapping[int, float]) -> float | None:
    """How many times smaller the widest gap between two tokens is at the second temperature; None if unmeasurable."""
    shared = sorted(cool.keys() & hot.keys(), key=lambda token: cool[token])
    if len(shared) < 2:
        return None
    low, high = shared[0], shared[-1]
    before, after = cool[high] - cool[low], hot[high] - hot[low]
    return before / after if before > MIN_GAP and after > 0 else None


def probe_request(prompt_ids: Ids, temperature: float) -> EngineRequest:
    """A request for one token, as a probe sends it."""
    sampling = SamplingParams(max_tokens=1, temperature=temperature, seed=0)
    return EngineRequest(f"probe-{temperature:g}", prompt_ids, sampling, (), Call(messages=(QUESTION,)))


def prompt_of(renderer: Renderer | None) -> Ids:
    """A short prompt in the model's own format, or ids every vocabulary has."""
    return PLAIN_PROMPT if renderer is None else renderer.render([QUESTION], ())


class ProbedEngine(ABC):
    """An engine behind HTTP, measured before its first generation and again after it was found down."""

    kind: str

    def __init__(self, connection: Connection, *, model: str = "", prompt_ids: Ids = PLAIN_PROMPT) -> None:
        self.connection = connection
        self.model = model
        self.prompt_ids = prompt_ids
        self._info: EngineInfo | None = None
        self._probing = asyncio.Lock()

    @abstractmethod
    async def measure(self) -> EngineInfo:
        """Ask the engine what it is; `EngineError` while that cannot be said."""

    @abstractmethod
    async def sample(self, request: EngineRequest, info: EngineInfo) -> Generation:
        """One generation from an engine measured as `info`."""

    async def probe(self) -> EngineInfo:
        async with self._probing:
            self._info = None
            self._info = await self.measure()
            return self._info

    async def generate(self, request: EngineRequest) -> Generation:
        info = await self._measured()
        try:
            return await self.sample(request, info)
        except EngineError as error:
            if error.kind == "engine_down" or (isinstance(error, RefusedError) and error.http_status in ROUTE_MISSING):
                self._info = None
            raise

    async def close(self) -> None:
        await self.connection.close()

    async def _measured(self) -> EngineInfo:
        if self._info is not None:
            return self._info
        async with self._probing:
            if self._info is None:
                self._info = await self.measure()
            return self._info
