"""A group: the rollouts of one task in one harness, and what each is worth beside the others.

Pure. A rollout has one vote in the baseline, however many rows it was cut into; one that could not be scored has none.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EPSILON = 1e-8
"""Added to the deviation, as TRL does."""


@dataclass(frozen=True, slots=True)
class RowReward:
    """A training row as some trainers take it: which rollout of which group it came from, and that one's reward."""

    group: int
    rollout: str
    reward: float | None


@dataclass(frozen=True, slots=True)
class RowAdvantage:
    """`centred` is the reward less the group's mean, `advantage` that over the population deviation.

    `weight` shares a rollout's vote out over its rows: they sum to 1. All are 0 where there is nothing to learn from.
    """

    centred: float
    advantage: float
    weight: float


def advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Per rollout of one group, None where it has no reward. A lone scored rollout, and equal ones, are worth 0."""
    scored = [reward for reward in rewards if reward is not None]
    if not scored:
        return [None] * len(rewards)
    mean, deviation = statistics.fmean(scored), statistics.pstdev(scored)
    return [None if reward is None else (reward - mean) / (deviation + EPSILON) for reward in rewards]


def row_advantages(rows: Sequence[RowReward]) -> list[RowAdvantage]:
    """Advantages of rows of any number of groups. ValueError: rows of one rollout disagree on its reward or group."""
    rollouts = _rollouts(rows)
    worth: dict[tuple[int, str], tuple[float, float]] = {}
    for group in {group for group, _ in rollouts}:
        members = {key: reward for key, reward in rollouts.items() if key[0] == group}
        scored = [reward for reward in members.values() if reward is not None]
        mean = statistics.fmean(scored) if scored else 0.0
        for (key, reward), advantage in zip(members.items(), advantages(list(members.values())), strict=True):
            worth[key] = (0.0, 0.0) if reward is None or advantage is None else (reward - mean, advantage)
    counts: dict[tuple[int, str], int] = {}
    for row in rows:
        counts[row.group, row.rollout] = counts.get((row.group, row.rollout), 0) + 1
    return [RowAdvantage(*worth[row.group, row.rollout], 1 / counts[row.group, row.rollout]) for row in rows]


def has_contrast(rewards: Sequence[float | None]) -> bool:
    """Whether the scored rollouts differ at all."""
    return len({reward for reward in rewards if reward is not None}) > 1


def _rollouts(rows: Sequence[RowReward]) -> Mapping[tuple[int, str], float | None]:
    rewards: dict[tuple[int, str], float | None] = {}
    groups: dict[str, int] = {}
    for row in rows:
        key = (row.group, row.rollout)
        if rewards.setdefault(key, row.reward) != row.reward:
            raise ValueError(f"Rows of rollout {row.rollout} carry rewards {rewards[key]} and {row.reward}.")
        if groups.setdefault(row.rollout, row.group) != row.group:
            raise ValueError(f"Rollout {row.rollout} has rows in groups {groups[row.rollout]} and {row.group}.")
    return rewards
