"""What every export format reads: a session's turns, what their contexts stand for, and which roles are trained.

Which turn's tokens are trained is decided here, once, for every format: a sampled token has mask 1 on the first path
that holds its turn and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harbor_env.gateway.paths import Path, discarded, paths
from harbor_env.gateway.types import Finding, Message, Tool, Turn

TRAINED_ROLES: tuple[str, ...] = ("main", "subagent")
"""Trained unless asked otherwise. Compactions and auxiliary calls (titles, commit messages) are context only: the
rollout's reward does not judge them."""


DISCARDED = Finding("discarded", "the same prompt was asked again after this reply, and nothing continues it")


@dataclass(frozen=True, slots=True)
class SessionExport:
    """Turns in commit order. `contexts` maps `Turn.context` to `{"tools": [Tool fields], "template_kwargs": {...}}`.

    `metadata` is the session's own, copied to every row; `findings` are the session's, beside those of its turns.
    `discarded` are turns whose reply the harness threw away; they are kept, marked, and trained only if asked for.
    """

    session_id: str
    turns: Sequence[Turn]
    contexts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    trained_roles: Sequence[str] = TRAINED_ROLES
    train_discarded: bool = False
    discarded: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "discarded", discarded(self.turns))

    def paths(self) -> list[Path]:
        """Root-to-leaf paths, conversation by conversation. ValueError: the turns are not in commit order."""
        return paths(self.turns)

    def trains(self, turn: Turn) -> bool:
        """Whether its sampled tokens are trained: by role, unless its reply was discarded, and with finite logprobs."""
        if turn.id in self.discarded and not self.train_discarded:
            return False
        return turn.trainable and turn.role in self.trained_roles and are_log_probabilities(turn.logprobs)

    def findings_of(self, turn: Turn) -> list[Finding]:
        """The turn's findings, and what only the whole session shows: that its reply was discarded."""
        return [*turn.findings, *([DISCARDED] if turn.id in self.discarded else [])]

    def trained_rows(self) -> int:
        """How many rows hold a trained token: what a trainer gets. `rows` has one per path, trained or not."""
        return sum(any(len(turn.sampled) and self.trains(turn) for turn in path.owned) for path in self.paths())

    def tools(self, turn: Turn) -> list[Tool]:
        """The tools this turn was asked with."""
        return [Tool(**fields) for fields in self.contexts.get(turn.context, {}).get("tools", ())]


def are_log_probabilities(values: Sequence[float]) -> bool:
    """Finite and not above zero, all of them."""
    return all(map(math.isfinite, values)) and max(values, default=0.0) <= 0.0


def conversation(path: Path, end: int | None = None) -> list[Message]:
    """Messages of `path.turns[:end]`, each turn's delta and then its reply."""
    found: list[Message] = []
    for turn in path.turns[:end]:
        found.extend(turn.delta)
        found.append(turn.reply)
    return found
