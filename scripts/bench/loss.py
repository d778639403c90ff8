"""Whether everything a harness was shown is in the store: pure, over what was shown and what was stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from harbor_env.gateway.types import Turn


@dataclass(frozen=True)
class Shown:
    """A reply a harness received: its text, the ids of its tool calls, and the token ids the engine sampled for it."""

    text: str
    call_ids: tuple[str, ...]
    sampled: tuple[int, ...]


@dataclass
class Loss:
    """Faults found, by kind, with the session they were found in; `unshown` turns were stored and never received."""

    faults: list[str] = field(default_factory=list)
    shown: int = 0
    stored: int = 0

    @property
    def unshown(self) -> int:
        return self.stored - self.shown + len(self.faults)


def look_for_loss(session: str, shown: Sequence[Shown], turns: Sequence[Turn], loss: Loss) -> None:
    """Add a session to `loss`: each shown reply must be stored with its ids, as a child of the one shown before it."""
    loss.shown += len(shown)
    loss.stored += len(turns)
    repeated = [turn_id for turn_id, count in Counter(turn.id for turn in turns).items() if count > 1]
    loss.faults += [f"{session}: turn {turn_id} is stored twice" for turn_id in repeated]
    parent: str | None = None
    for place, reply in enumerate(shown):
        found = next((turn for turn in turns if turn.parent == parent and _is(turn, reply)), None)
        if found is None:
            loss.faults.append(f"{session}: reply {place} was shown and is not stored after {parent}")
            return
        if tuple(found.sampled) != reply.sampled or len(found.logprobs) != len(found.sampled):
            loss.faults.append(f"{session}: turn {found.id} is stored with other ids than were sampled")
        parent = found.id


def _is(turn: Turn, reply: Shown) -> bool:
    return turn.reply.content == reply.text and tuple(call.id for call in turn.reply.tool_calls) == reply.call_ids
