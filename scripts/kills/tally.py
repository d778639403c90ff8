"""What became of the rollouts that ran when something was killed, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Kills:
    """All kills of one part. Seconds after the kill: `ended` until the last rollout that ran then had ended, `gone`
    until no process below the victim was left, `works` until a rollout that began afterwards had scored."""

    part: str
    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    ended: float = 0.0
    gone: float = 0.0
    works: float = 0.0
    faults: list[str] = field(default_factory=list)

    def take(self, rollout: dict[str, Any]) -> None:
        """Count a rollout by its end, and as a fault what is neither a score nor a failure with a reason."""
        ok, reward, kind = rollout.get("ok"), rollout.get("reward"), rollout.get("kind")
        if ok:
            self.outcomes["scored"] += 1
        else:
            self.outcomes[str(kind)] += 1
        if bool(ok) != (reward is not None) or (not ok and not rollout.get("sentence")) or "ok" not in rollout:
            self.faults.append(f"{self.part}: neither a score nor a failure with a reason: {rollout}")


def table(kills: Iterable[Kills]) -> str:
    """One line a part, widths fitted."""
    head = ("killed", "times", "rollouts", "outcomes", "ended s", "gone s", "works s", "faults")
    rows = [head]
    for one in kills:
        outcomes = ", ".join(f"{kind} {count}" for kind, count in sorted(one.outcomes.items()))
        worst = (f"{one.ended:.1f}", f"{one.gone:.1f}", f"{one.works:.1f}")
        rows.append((one.part, str(one.count), str(one.outcomes.total()), outcomes, *worst, str(len(one.faults))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
