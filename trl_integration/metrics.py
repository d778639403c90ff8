"""What a trainer logs of its rollouts, per harness.

Pure. Values are shaped as TRL's trainer sums them: a pair is a rate (numerator, denominator), a number under a name
with `total` is a counter, one with `max` an extreme. Names are `harness/NAME/...` for one
harness, `groups/...` for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trl_integration.groups import has_contrast
from trl_integration.records import Record
from trl_integration.rewards import Reward, Scored

MetricValue = float | tuple[float, float]

TOLERANCE = 1e-9


def harness_metrics(records: Iterable[Record], version: int) -> dict[str, MetricValue]:
    """One group's rollouts, or any others.

    `version` is the policy's when they are scored: staleness is how many weight versions it has moved on since they
    began. They may wait longer than that before they are trained.
    """
    by_harness: dict[str, list[Record]] = {}
    for record in records:
        by_harness.setdefault(record.harness, []).append(record)
    values: dict[str, MetricValue] = {}
    for harness, own in by_harness.items():
        values |= {f"harness/{harness}/{name}": value for name, value in _one_harness(own, version).items()}
    return values


def _one_harness(records: Sequence[Record], version: int) -> dict[str, MetricValue]:
    scored = [record for record in records if record.scored is not None]
    values: dict[str, MetricValue] = {
        "rollouts_total": float(len(records)),
        "scored": (float(len(scored)), float(len(records))),
        "reward": _mean(scored, lambda record: record.reward or 0.0),
        "pass_rate": _mean(scored, lambda record: float(_facts(record).correct >= 1.0)),
        "turns": _mean(scored, lambda record: _facts(record).turns),
        "tool_calls": _mean(scored, lambda record: _facts(record).tool_calls),
        "rows": _mean(scored, lambda record: record.rows),
        "trained_tokens": _mean(scored, lambda record: record.trained),
        "context_tokens": _mean(scored, lambda record: record.context),
        "weight_versions": _mean(scored, lambda record: record.versions),
        "staleness": _mean(records, lambda record: version - record.version),
        "seconds": _mean(records, lambda record: record.seconds.get("total", 0.0)),
    }
    for record in records:
        if record.scored is None:
            name = f"unscorable_{record.cause or 'unknown'}_total"
            values[name] = _number(values.get(name, 0.0)) + 1.0
    # A mean over nothing is no number.
    return {name: value for name, value in values.items() if not isinstance(value, tuple) or value[1]}


def group_metrics(records: Sequence[Record]) -> dict[str, MetricValue]:
    """Whether one group can teach anything, and whether only the bonus lets it: of all groups and of its harness's."""
    rewards = [record.reward for record in records]
    scored = [record for record in records if record.scored is not None]
    contrast = has_contrast(rewards)
    plain = has_contrast([_facts(record).correct for record in scored])
    told: dict[str, MetricValue] = {
        "without_contrast": (float(not contrast), 1.0),
        "contrast_by_bonus_only": (float(contrast and not plain), 1.0),
    }
    places = ["groups", *(f"harness/{harness}" for harness in {record.harness for record in records})]
    return {
        "groups/scored_rollouts": (float(len(scored)), 1.0),
        "groups/too_few_scored_total": float(len(scored) < 2),
        **{f"{place}/{name}": value for place in places for name, value in told.items()},
    }


def disagreeing(group_rewards: Iterable[float | None], records: Iterable[Record]) -> int:
    """How many of a group's rewards, as the trainer has them, are not those of the group's records; normally 0.

    Rollouts that nobody could score count for nothing here, and the order is no matter.
    """
    used = Counter(reward for reward in group_rewards if reward is not None)
    known = Counter(record.reward for record in records if record.reward is not None)
    return max((used - known).total(), (known - used).total())


@dataclass(frozen=True, slots=True)
class Audit:
    """`wrong` tells of every rollout whose reward is not what the formula says. The rest counts groups."""

    rollouts: int
    unscorable: int
    groups: int
    without_contrast: int
    bonus_only: int
    wrong: tuple[str, ...]


def audit(records: Iterable[Record], reward: Reward) -> Audit:
    """Recompute every reward, and count the groups whose only contrast was the bonus and those with none.

    It holds a file of records against the formula; `disagreeing` holds what is trained against the records.
    """
    groups: dict[int, list[Record]] = {}
    for record in records:
        groups.setdefault(record.group, []).append(record)
    everything = [record for group in groups.values() for record in group]
    told = [group_metrics(group) for group in groups.values()]
    return Audit(
        rollouts=len(everything),
        unscorable=sum(record.scored is None for record in everything),
        groups=len(groups),
        without_contrast=sum(_count(values["groups/without_contrast"]) for values in told),
        bonus_only=sum(_count(values["groups/contrast_by_bonus_only"]) for values in told),
        wrong=tuple(problem for record in everything if (problem := _problem(record, reward))),
    )


def _problem(record: Record, reward: Reward) -> str:
    where = f"group {record.group}, {record.harness}"
    if record.scored is None:
        return "" if record.reward is None else f"{where}: unscorable, but its reward is {record.reward}"
    right: Any = None
    try:
        right = reward(record.scored)
        # A difference that is no number is none within bounds.
        if record.reward is not None and abs(record.reward - float(right)) <= TOLERANCE:
            return ""
    except Exception as error:  # noqa: BLE001  # it is anybody's function
        right = error if right is None else right
    return f"{where}: reward {record.reward}, but the formula says {right!r} for {record.scored.tool_calls} tool calls"


def _facts(record: Record) -> Scored:
    if record.scored is None:
        raise ValueError("an unscorable rollout has no score")
    return record.scored


def _mean(records: Sequence[Record], value: Callable[[Record], float]) -> tuple[float, float]:
    return float(sum(value(record) for record in records)), float(len(records))


def _number(value: MetricValue) -> float:
    return value[0] if isinstance(value, tuple) else value


def _count(value: MetricValue) -> int:
    return int(_number(value))
