"""What a family of tasks is made of: a seeded draw, the draft it returns, and the checks its grader makes.

Pure: everything random comes from the `random.Random` a `Draw` was given, so one seed is one task, byte for byte.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, Literal, TypeVar

from task_families.themes import THEMES, Theme

Split = Literal["train", "heldout"]
AnswerKind = Literal["number", "text", "date", "list", "edit"]
Check = Mapping[str, Any]
T = TypeVar("T")

CLOSINGS: Mapping[AnswerKind, Sequence[str]] = {
    "number": (
        "Write only the number to /app/answer.txt.",
        "Put just the number in /app/answer.txt.",
        "Save the number, and nothing else, as /app/answer.txt.",
        "The file /app/answer.txt must hold the number alone.",
    ),
    "text": (
        "Write only the answer to /app/answer.txt.",
        "Put just the answer in /app/answer.txt.",
        "Save the answer, and nothing else, as /app/answer.txt.",
        "The file /app/answer.txt must hold the answer alone.",
    ),
    "date": (
        "Write only the date, as YYYY-MM-DD, to /app/answer.txt.",
        "Put just the date (YYYY-MM-DD) in /app/answer.txt.",
        "Save the date in the form YYYY-MM-DD, and nothing else, as /app/answer.txt.",
        "The file /app/answer.txt must hold the date alone, as YYYY-MM-DD.",
    ),
    "list": (
        "Write them to /app/answer.txt, one per line, in that order.",
        "Put them in /app/answer.txt in that order, one on each line.",
        "Save them as /app/answer.txt: one per line, in that order.",
        "The file /app/answer.txt must list them in that order, one a line.",
    ),
    "edit": ("",),
}


class Redraw(Exception):
    """The draw came out ambiguous (a tie, an empty group); the next seed is tried."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One task before it is written.

    `files` are paths below /app and their text. `solution` are shell commands run in /app one after the other, each in
    a shell of its own. `answer` chooses the closing line of the instruction; `edit` has none.
    """

    question: str
    answer: AnswerKind
    files: Mapping[str, str]
    checks: Sequence[Check]
    solution: Sequence[str]
    tags: Sequence[str] = ("data-analysis",)


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a theme's table; `cents` is the price."""

    number: int
    thing: str
    group: str
    person: str
    day: date
    count: int
    cents: int

    @property
    def price(self) -> str:
        return money(self.cents)


@dataclass(slots=True)
class Draw:
    """The random choices of one task. Held-out tasks draw from themes and phrasings that training tasks never use."""

    rng: random.Random
    split: Split
    theme: Theme = field(init=False)

    def __post_init__(self) -> None:
        self.theme = self.rng.choice(THEMES[self.split])

    def phrase(self, *phrasings: str, **words: object) -> str:
        """One of `phrasings`, filled in. The last one is reserved for held-out tasks."""
        usable = phrasings[-1:] if self.split == "heldout" else phrasings[: max(1, len(phrasings) - 1)]
        return self.rng.choice(usable).format(**words)

    def between(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return self.rng.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        return self.rng.sample(options, count)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self.rng.sample(items, len(items))

    def file(self, suffix: str) -> str:
        """A file name in the words of the theme."""
        return f"{self.pick(self.theme.files)}.{suffix}"

    def day(self) -> date:
        return date(self.between(2019, 2025), 1, 1) + timedelta(days=self.between(0, 300))

    def rows(self, count: int, *, days: int = 120) -> list[Row]:
        """Records in order of their number, within `days` of a first day."""
        first, theme = self.day(), self.theme
        start = self.between(100, 900)
        return [
            Row(
                number=start + index,
                thing=self.pick(theme.things),
                group=self.pick(theme.groups),
                person=self.pick(theme.people),
                day=first + timedelta(days=self.between(0, days)),
                count=self.between(1, 40),
                cents=self.between(150, 9_999),
            )
            for index in range(count)
        ]

    def sentence(self) -> str:
        theme = self.theme
        return self.pick(
            (
                f"{self.pick(theme.people)} asked about {self.pick(theme.things)}",
                f"{self.between(2, 60)} of {self.pick(theme.things)} for {self.pick(theme.people)}",
                f"moved {self.pick(theme.things)} next to {self.pick(theme.things)}",
                f"{self.pick(theme.things)}: ready on day {self.between(1, 30)}",
            )
        )


@dataclass(frozen=True, slots=True)
class Family:
    """A template of tasks: its name, its level (1 easiest) and what draws one."""

    name: str
    level: int
    draw: Callable[[Draw], Draft]


FAMILIES: dict[str, Family] = {}


def family(level: int) -> Callable[[Callable[[Draw], Draft]], Callable[[Draw], Draft]]:
    """Enter a drawing function into FAMILIES under its own name, dashes for underscores."""

    def enter(draw: Callable[[Draw], Draft]) -> Callable[[Draw], Draft]:
        name = draw.__name__.replace("_", "-")
        FAMILIES[name] = Family(name, level, draw)
        return draw

    return enter


def money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def text_of(lines: Sequence[object]) -> str:
    return "".join(f"{line}\n" for line in lines)


def number(value: int | Fraction, decimals: int = 0, *, percent: bool = False) -> Check:
    """A number in answer.txt. Values so near a rounding tie that two roundings could be defended are drawn again."""
    exact = Fraction(value)
    if abs((exact * 10**decimals) % 1 - Fraction(1, 2)) < Fraction(1, 10**6):
        raise Redraw("the value lies on a rounding tie")
    scaled = round(exact * 10**15)
    digits = f"{abs(scaled):016d}"
    value_text = f"{'-' if scaled < 0 else ''}{digits[:-15]}.{digits[-15:]}".rstrip("0").rstrip(".")
    return {
        "kind": "number",
        "file": "answer.txt",
        "value": value_text,
        **({"decimals": decimals} if decimals else {}),
        **({"percent": True} if percent else {}),
    }


def text(value: str) -> Check:
    return {"kind": "text", "file": "answer.txt", "value": value}


def day(value: date) -> Check:
    return {"kind": "date", "file": "answer.txt", "value": value.isoformat()}


def ordered(items: Sequence[str]) -> Check:
    return {"kind": "list", "file": "answer.txt", "items": [{"kind": "text", "value": item} for item in items]}


def lines(file: str, wanted: Sequence[str]) -> Check:
    return {"kind": "lines", "file": file, "lines": list(wanted)}


def top(totals: Mapping[str, int | Fraction]) -> str:
    """The key of the largest value; a tie is drawn again."""
    best = max(totals.values())
    winners = [key for key, value in totals.items() if value == best]
    if len(winners) > 1:
        raise Redraw("two share the first place")
    return winners[0]


def python(source: str) -> str:
    """A shell command that runs `source` and keeps what it prints as the answer."""
    return f"python3 - > answer.txt <<'EOF'\n{source.strip()}\nEOF"
