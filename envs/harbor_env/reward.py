"""One number from what a verifier wrote, or the reason why there is none; it never guesses between keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

PASSED = 1.0
"""The reward from which on a task counts as solved."""


@dataclass(frozen=True, slots=True)
class Selected:
    """`value` is None exactly when `problem` says why."""

    value: float | None
    problem: str = ""


def select_reward(rewards: Mapping[str, object] | None, key: str = "") -> Selected:
    """The reward called `key`; without one, `reward` if the verifier wrote it, else the only number there is.

    `rewards` is what Harbor read: `reward.json` where the verifier wrote it, else `reward.txt` under the name `reward`.
    """
    if not rewards:
        return Selected(None, "The verifier wrote no reward.")
    known = ", ".join(sorted(rewards))
    name = key or ("reward" if "reward" in rewards else "")
    if not name and len(rewards) > 1:
        return Selected(None, f"The verifier wrote several rewards ({known}): say which with a reward key.")
    name = name or next(iter(rewards))
    if name not in rewards:
        return Selected(None, f"The verifier wrote no reward {name!r}, only: {known}.")
    value = rewards[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Selected(None, f"The reward {name!r} is not a number.")
    if not math.isfinite(value):
        return Selected(None, f"The reward {name!r} is {value}, which is not finite.")
    return Selected(float(value))
