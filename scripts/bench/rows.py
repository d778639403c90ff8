"""Training rows of captured rollouts, and what a trainer would forward and train of them. Pure.

A turn goes by its id in the recorded rollout, whoever captured it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Row:
    """One training row: its token ids, and the turns whose sampled tokens carry mask 1 in it."""

    ids: Sequence[int]
    trained: Sequence[str]


@dataclass(frozen=True)
class Step:
    """One turn of a training trace: whole prompt and sampled ids. `trained`: the sampled ones have mask 1."""

    turn: str
    prompt: Sequence[int]
    sampled: Sequence[int]
    trained: bool


@dataclass(frozen=True)
class Taken:
    """One rollout as a trainer gets it: tokens sampled by turn as recorded, rows, and turns the capture refused."""

    sampled: Mapping[str, int]
    rows: Sequence[Row]
    refused: int = 0


def chained(steps: Iterable[Step]) -> list[Row]:
    """The rows TRL's harness worker makes of a trace: a turn goes on in the last row or, where its prompt does not
    begin with that row's very tokens, opens a new one. Rows that train nothing are left out.
    """
    rows: list[tuple[list[int], list[str]]] = []
    for step in steps:
        ids = [*step.prompt, *step.sampled]
        held = rows[-1][0] if rows else None
        trained = [step.turn] if step.trained and step.sampled else []
        if held is not None and ids[: min(len(held), len(step.prompt))] == held:
            rows[-1] = (ids, rows[-1][1] + trained)
        else:
            rows.append((ids, trained))
    return [Row(ids, trained) for ids, trained in rows if trained]


def measured(rollouts: Sequence[Taken], batch: int) -> dict[str, float]:
    """Counts over all rollouts; a token is trained once where exactly one row holds it with mask 1.

    `padded`: rows in the rollouts' order, `batch` of them at a time, each as long as the longest of its batch; the last
    batch may hold fewer. `packed`: the same batches as prefix trees, in which a token that several rows share from
    their beginning on stands once.
    """
    counts: Counter[str] = Counter()
    for rollout in rollouts:
        held = Counter(turn for row in rollout.rows for turn in row.trained)
        counts["rollouts"] += 1
        counts["turns"] += len(rollout.sampled)
        counts["refused"] += rollout.refused
        counts["without_a_row"] += not rollout.rows
        counts["sampled"] += sum(rollout.sampled.values())
        for turn, tokens in rollout.sampled.items():
            counts["trained"] += held[turn] * tokens
            counts["trained_once"] += (held[turn] == 1) * tokens
            counts["trained_more"] += (held[turn] > 1) * tokens
    rows = [row.ids for rollout in rollouts for row in rollout.rows]
    counts["rows"] = len(rows)
    counts["tokens"] = sum(map(len, rows))
    batches = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    counts["padded"] = sum(len(one) * max(map(len, one)) for one in batches)
    counts["packed"] = sum(map(distinct, batches))
    return {name: counts[name] for name in NAMES}


NAMES = (
    *("rollouts", "turns", "refused", "without_a_row", "rows", "tokens", "sampled"),
    *("trained", "trained_once", "trained_more", "padded", "packed"),
)


def distinct(rows: Sequence[Sequence[int]]) -> int:
    """Tokens of the prefix tree TRL packs a batch into: rows share one as long as they agree on it and the next."""
    ordered = sorted(map(list, rows))
    return sum(map(len, ordered)) - sum(_shared(one, other) for one, other in pairwise(ordered))


def _shared(one: list[int], other: list[int]) -> int:
    if one == other:
        return len(one)
    both = min(len(one), len(other))
    agreed = next((place for place in range(both) if one[place] != other[place]), both)
    return max(0, agreed - 1)
