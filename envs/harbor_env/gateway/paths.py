"""The shape of a session: its turns as a forest, read path by path.

Turns come in commit order, so a parent stands before its children. Every function is pure and visits a turn once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harbor_env.gateway.meaning import is_broken_off, same_delta
from harbor_env.gateway.types import Turn


@dataclass(frozen=True, slots=True)
class Path:
    """One root-to-leaf path. `turns[owned_from:]` are on no earlier path: this one owns them."""

    turns: tuple[Turn, ...]
    owned_from: int

    @property
    def owned(self) -> tuple[Turn, ...]:
        return self.turns[self.owned_from :]


def roots(turns: Sequence[Turn]) -> list[Turn]:
    """Turns that start a conversation, oldest first."""
    return [turn for turn in turns if turn.parent is None]


def leaves(turns: Sequence[Turn]) -> list[Turn]:
    """Turns nothing continues, oldest first."""
    continued = {turn.parent for turn in turns}
    return [turn for turn in turns if turn.id not in continued]


def paths(turns: Sequence[Turn]) -> list[Path]:
    """One path per leaf: conversation by conversation, depth first, the oldest branch first, discarded replies last.

    Each turn is owned by exactly one path, the first that holds it; so what came before a discarded reply stays in one
    row with what came after the reply that took its place. ValueError: a parent is missing or comes later.
    """
    dropped = discarded(turns)
    children: dict[str | None, list[Turn]] = {None: []}
    for turn in turns:
        if turn.parent not in children:
            raise ValueError(f"turn {turn.id} continues {turn.parent}, which is not before it")
        children[turn.parent].append(turn)
        children[turn.id] = []
    found: list[Path] = []
    trail: list[Turn] = []
    owned_from = 0
    waiting = [(turn, 0) for turn in reversed(children[None])]
    while waiting:
        turn, depth = waiting.pop()
        owned_from = min(owned_from, depth)
        del trail[depth:]
        trail.append(turn)
        following = sorted(children[turn.id], key=lambda child: child.id in dropped)
        waiting.extend((child, depth + 1) for child in reversed(following))
        if not following:
            found.append(Path(tuple(trail), owned_from))
            owned_from = len(trail)
    return found


def discarded(turns: Sequence[Turn]) -> frozenset[str]:
    """Ids of turns whose prompt was asked again after their reply was sent, and that nothing continues.

    The prompt may come again with the beginning of that very reply behind it, where the connection broke and the
    harness goes on from what it got. Only times and meaning decide, never tokens: calls in flight side by side are
    samples of their own. A turn that does not say when it was asked (`began`, `engine_s` among its facts, in seconds)
    is never called discarded.
    """
    continued = {turn.parent for turn in turns}
    last_asked: dict[tuple[str | None, str, bytes], float] = {}
    siblings: dict[tuple[str | None, str], Turn] = {}
    found: set[str] = set()
    for turn in reversed(turns):
        prompt = (turn.parent, turn.context, turn.delta_ids.tobytes())
        began, seconds = turn.facts.get("began"), turn.facts.get("engine_s")
        if began is None or seconds is None:
            continue
        following = siblings.get(prompt[:2])
        resumed = following.facts["began"] if following is not None and _resumes(following, turn) else began
        if turn.id not in continued and max(last_asked.get(prompt, began), resumed) > began + seconds:
            found.add(turn.id)
        last_asked[prompt] = max(last_asked.get(prompt, began), began)
        siblings[prompt[:2]] = turn
    return frozenset(found)


def _resumes(later: Turn, turn: Turn) -> bool:
    """What `later` adds to their parent is what `turn` added and then the beginning of its reply."""
    at = len(turn.delta)
    if at >= len(later.delta) or later.delta[at].role != "assistant":
        return False
    return is_broken_off(later.delta[at], turn.reply) and same_delta(turn.delta, later.delta, 0)
