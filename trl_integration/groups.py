"""A group: the rollouts of one task in one harness, of which each is worth something only beside the others.

Pure. One that could not be scored takes no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

TOO_FEW = "with fewer than two scored rollouts"
SAME = "whose rollouts all earned the same"
NO_ROW = "whose rollouts have no row to train"


def has_contrast(rewards: Sequence[float | None]) -> bool:
    """Whether the scored rollouts differ at all."""
    return len({reward for reward in rewards if reward is not None}) > 1


class Dropped:
    """Counts the groups of which nothing is trained, by why, and what there is to say of them now and then."""

    def __init__(self, say_every: float = 300.0) -> None:
        self._say_every = say_every
        self._said_at: float | None = None
        self._groups = 0
        self._ever: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()

    @property
    def in_a_row(self) -> int:
        """How many were dropped since one was trained."""
        return self._in_a_row.total()

    def reasons(self) -> str:
        """Why those in a row were dropped."""
        return _told(self._in_a_row)

    def add(self, why: str, now: float) -> str:
        """Count a group that was dropped, or trained where `why` is empty; a sentence where it is time for one.

        `now` is in seconds, of any clock. The first that is dropped is told, then at most one in `say_every` seconds.
        """
        self._groups += 1
        if not why:
            self._in_a_row.clear()
            return ""
        self._ever[why] += 1
        self._in_a_row[why] += 1
        if self._said_at is not None and now - self._said_at < self._say_every:
            return ""
        self._said_at = now
        return (
            f"{self._ever.total()} of {self._groups} groups had nothing to train, the last {self.in_a_row} in a row: "
            f"{_told(self._ever)}."
        )


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {why}" for why, count in counts.most_common())
