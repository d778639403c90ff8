"""When the gateway was away, so that no harness is judged by calls nobody could have answered. Pure: times come in."""

from __future__ import annotations

from dataclasses import dataclass, field

AWAY = "The gateway is being started again."
"""What a caller hears meanwhile."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Between `last_heard`, when the gateway still answered, and `back`, when it did again: seconds of one clock."""

    last_heard: float
    back: float


@dataclass(slots=True)
class Outages:
    """What a supervisor tells as it looks, and what it has seen since it began."""

    _heard_at: float = 0.0
    _down: bool = False
    _seen: list[Outage] = field(default_factory=list)

    def heard(self, now: float) -> None:
        """The gateway answered."""
        if self._down:
            self._seen.append(Outage(self._heard_at, now))
        self._heard_at, self._down = now, False

    def lost(self) -> None:
        """It answers no more."""
        self._down = True

    def over(self, start: float, end: float) -> float | None:
        """When the gateway was back from the last outage that may have fallen between two times; None: it was there.

        Infinity where it is not back yet.
        """
        if self._down and self._heard_at < end:
            return float("inf")
        return max((one.back for one in self._seen if one.last_heard < end and one.back > start), default=None)
