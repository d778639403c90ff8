"""How a batch stands, in numbers: what was scored, how much of it passed, and how sure one can be of that. Pure.

Invariant: what could not be scored is counted apart and is in no mean; every rollout counts once, however often it was
tried.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harbor_env.outcome import RolloutResult
from harbor_env.reward import PASSED

"""The reward from which on a rollout has passed."""
Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Standing:
    """Counts over some rollouts. `scored` of `n` have a reward; `unscorable` counts the others by the kind of reason.

    `mean` is of the rewards, None without any. Turns, rows and (sampled) tokens are sums over all `n`.
    """

    n: int
    scored: int
    passed: int
    mean: float | None
    turns: int
    rows: int
    tokens: int
    unscorable: Counter[str]

    @property
    def rate(self) -> float | None:
        """The share of scored rollouts that passed."""
        return self.passed / self.scored if self.scored else None


def standing(results: Iterable[RolloutResult]) -> Standing:
    """Counts over all results; mean and passes over those that scored alone."""
    found = list(results)
    rewards = [result.reward for result in found if result.reward is not None]
    turns, rows, tokens = (sum(r.counts.get(key, 0) for r in found) for key in ("turns", "rows", "sampled_tokens"))
    return Standing(
        n=len(found),
        scored=len(rewards),
        passed=sum(reward >= PASSED for reward in rewards),
        mean=sum(rewards) / len(rewards) if rewards else None,
        turns=turns,
        rows=rows,
        tokens=tokens,
        unscorable=Counter(result.reason.kind for result in found if result.reason is not None),
    )


def by_harness(results: Iterable[RolloutResult]) -> dict[str, list[RolloutResult]]:
    """The results of each harness, by its name."""
    found: dict[str, list[RolloutResult]] = defaultdict(list)
    for result in results:
        found[result.harness].append(result)
    return dict(sorted(found.items()))


def interval(passed: int, scored: int) -> tuple[float, float]:
    """The 95 % interval of a pass rate after Wilson: from 0 to 1 where nothing was scored, never beyond either."""
    if not scored:
        return 0.0, 1.0
    share, spread = passed / scored, Z95**2 / scored
    middle = share + spread / 2
    margin = Z95 * math.sqrt(share * (1 - share) / scored + spread / (4 * scored))
    return max(0.0, (middle - margin) / (1 + spread)), min(1.0, (middle + margin) / (1 + spread))


def groups(results: Sequence[RolloutResult]) -> tuple[int, int, int]:
    """Of the groups (scored attempts of one task by one harness, two or more): all, those whose rewards differ, and
    those with an attempt that passed."""
    rewards: dict[tuple[str, str], list[float]] = defaultdict(list)
    for result in results:
        if result.reward is not None:
            rewards[result.task, result.harness].append(result.reward)
    several = [group for group in rewards.values() if len(group) > 1]
    return len(several), sum(len(set(group)) > 1 for group in several), sum(max(group) >= PASSED for group in several)


def seconds_left(done: int, total: int, elapsed: float) -> float | None:
    """How long the rest takes at the pace so far; None while there is none."""
    return elapsed * (total - done) / done if done else None


def count(number: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
