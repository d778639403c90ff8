"""What a rollout earned: the verifier's score, a bonus for doing it in few tool calls, or terms of one's own.

Pure and picklable. A rollout that could not be scored has no reward; nothing here turns it into a number. The bonus is
`1.5 / (15 + tool calls)`, for a correct answer only: a bonus that wrong answers can have is a second task, and a
policy will learn that one instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Scored:
    """A rollout that was scored. `correct` is the verifier's reward; `tool_calls` is the harness's own count.

    `rewards` is all the verifier wrote; `tokens` are the sampled ones.
    """

    harness: str
    correct: float
    tool_calls: int
    turns: int = 0
    tokens: int = 0
    flags: tuple[str, ...] = ()
    rewards: Mapping[str, float] = field(default_factory=dict)


Reward = Callable[[Scored], float]
"""Any function of a scored rollout. It is sent to another process: a module's function or a picklable object."""


def correctness(scored: Scored) -> float:
    """The verifier's own reward."""
    return scored.correct


@dataclass(frozen=True, slots=True)
class EfficiencyBonus:
    """`scale / (offset + tool calls)` where the answer is correct (at least `at`), else 0."""

    scale: float = 1.5
    offset: float = 15.0
    at: float = 1.0

    def __post_init__(self) -> None:
        if self.offset <= 0:
            raise ValueError("The offset of the efficiency bonus is above 0.")

    def __call__(self, scored: Scored) -> float:
        return self.scale / (self.offset + scored.tool_calls) if scored.correct >= self.at else 0.0


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms added up, each with its weight."""

    terms: tuple[tuple[Reward, float], ...]

    def __call__(self, scored: Scored) -> float:
        return math.fsum(weight * term(scored) for term, weight in self.terms)


def compose(*terms: Reward | tuple[Reward, float]) -> Sum:
    """`compose(correctness, (EfficiencyBonus(), 0.5), my_term)`: a term without a weight has weight 1."""
    if not terms:
        raise ValueError("A reward needs at least one term.")
    return Sum(tuple(term if isinstance(term, tuple) else (term, 1.0) for term in terms))


STANDARD = compose(correctness, EfficiencyBonus())
"""1 for correct, 0 for wrong, and the efficiency bonus on top of correct."""
