"""Which harness a group of rollouts runs in, and on which task.

Pure and picklable. Both are functions of the group's number alone, so all rollouts of a group share one task and one
harness, also over restarts and in other processes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol


class Rotation(Protocol):
    """`rotation(group)` is the harness's name; `harnesses` are all it may name."""

    @property
    def harnesses(self) -> tuple[str, ...]: ...

    def __call__(self, group: int | None) -> str: ...


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each harness in turn. `tasks` is how many tasks the split has, so that every task meets every harness.

    Group g runs the task at place g mod `tasks` of an order that stays the same. Where `tasks` and the number of
    harnesses share a factor, plain turns would tie a task to some harnesses for ever; the turn then moves on by one
    more after each pass over the tasks.
    """

    harnesses: tuple[str, ...]
    tasks: int = 0

    def __post_init__(self) -> None:
        _need(self.harnesses)

    def __call__(self, group: int | None) -> str:
        number, count = group or 0, len(self.harnesses)
        if self.tasks:
            shift = next(step for step in range(count + 1) if math.gcd(self.tasks + step, count) == 1)
            number += shift * (number // self.tasks)
        return self.harnesses[number % count]


@dataclass(frozen=True, slots=True)
class Weighted:
    """Harnesses drawn with fixed odds, the same draw for the same group and `seed`. Weights need not sum to one."""

    harnesses: tuple[str, ...]
    weights: tuple[float, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        _need(self.harnesses)
        if len(self.weights) != len(self.harnesses):
            raise ValueError(f"{len(self.harnesses)} harnesses need as many weights, not {len(self.weights)}.")
        if min(self.weights) < 0 or not 0 < sum(self.weights) < math.inf:
            raise ValueError("Weights are finite, none negative, and one at least positive.")

    def __call__(self, group: int | None) -> str:
        point = _uniform(f"{self.seed}/{group or 0}") * sum(self.weights)
        for harness, weight in zip(self.harnesses, self.weights, strict=True):
            point -= weight
            if point < 0:
                return harness
        return max(zip(self.weights, self.harnesses, strict=True))[1]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One rotation after another: `stages` are (first group, rotation), the first from group 0."""

    stages: tuple[tuple[int, Rotation], ...]

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.stages]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError("The stages of a schedule begin at group 0 and rise.")

    @property
    def harnesses(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for _, rotation in self.stages for name in rotation.harnesses))

    def __call__(self, group: int | None) -> str:
        return next(rotation for start, rotation in reversed(self.stages) if start <= (group or 0))(group)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """All `tasks` pass after pass, in one order drawn from `seed`: a dataset's own often puts like beside like.

    The order is the same in every pass, so `RoundRobin` still lets every task meet every harness.
    """

    tasks: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ValueError("There is no task to shuffle.")

    def __call__(self, group: int | None) -> int:
        """The index of the group's task in its split."""
        return _order(self.tasks, self.seed)[(group or 0) % self.tasks]


@cache
def _order(tasks: int, seed: int) -> tuple[int, ...]:
    return tuple(sorted(range(tasks), key=lambda index: _uniform(f"task {seed}/{index}")))


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a run: `groups` groups in `harnesses`, in turn or drawn by weight. None: to the run's end."""

    harnesses: Sequence[str] | Mapping[str, float]
    groups: int | None = None


Harnesses = Sequence[str] | Mapping[str, float] | Sequence[Stage]
"""What a configuration says of them."""


def rotation(harnesses: Harnesses, *, tasks: int = 0, seed: int = 0) -> Rotation:
    """What a configuration means: a list takes turns, a mapping of names to weights is drawn from, stages follow.

    ValueError: it means nothing.
    """
    if isinstance(harnesses, Mapping):
        return Weighted(tuple(harnesses), tuple(float(weight) for weight in harnesses.values()), seed)
    names = tuple(one for one in harnesses if isinstance(one, str))
    stages = tuple(one for one in harnesses if isinstance(one, Stage))
    return _schedule(stages, tasks, seed) if stages else RoundRobin(names, tasks)


def _schedule(stages: Sequence[Stage], tasks: int, seed: int) -> Schedule:
    starts = [0]
    for stage in stages[:-1]:
        if stage.groups is None or stage.groups < 1:
            raise ValueError("Every stage but the last has a number of groups.")
        starts.append(starts[-1] + stage.groups)
    if stages[-1].groups is not None:
        raise ValueError("The last stage goes on to the run's end and has no number of groups.")
    rotations = (rotation(stage.harnesses, tasks=tasks, seed=seed) for stage in stages)
    return Schedule(tuple(zip(starts, rotations, strict=True)))


def _need(harnesses: tuple[str, ...]) -> None:
    if not harnesses:
        raise ValueError("Name at least one harness.")
    if len(set(harnesses)) < len(harnesses):
        raise ValueError("A harness is named twice; to run it more often, give weights.")


def _uniform(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest()) / 2**56
