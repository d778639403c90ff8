"""What a trainer knows of each rollout it asked for, scored or not.

Invariant: `reward` is None exactly when `scored` is None, and then `cause` says why.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_env.atif import count_tool_calls
from trl_integration.line_files import read_lines
from trl_integration.rewards import Scored

if TYPE_CHECKING:
    from harbor_env.models import HarborResult


@dataclass(frozen=True, slots=True)
class Record:
    """One rollout of a group. `version` is the policy's when it began; `seconds` per phase.

    `rows`, `trained` and `context` (tokens) are what a trainer forwards for it, `versions` how many weight versions
    the engine sampled it with. `cause` is a failure's kind, `sentence` tells it.
    """

    group: int
    harness: str
    version: int = 0
    task: str = ""
    scored: Scored | None = None
    reward: float | None = None
    cause: str = ""
    sentence: str = ""
    rows: int = 0
    trained: int = 0
    context: int = 0
    versions: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def read_records(path: Path) -> list[Record]:
    """The records of a run, from the JSON lines its worker wrote."""
    return [_record(line) for line in read_lines(path)]


def _record(values: dict[str, Any]) -> Record:
    scored = values["scored"]
    if scored is not None:
        scored = Scored(**{**scored, "flags": tuple(scored["flags"])})
    return Record(**{**values, "scored": scored})


class Ledger:
    """Records by group until they are taken, and the latest that could not be scored. Safe between threads."""

    def __init__(self, told: Callable[[Record], None] | None = None) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._groups: dict[int, list[Record]] = {}
        self._lately: deque[Record] = deque(maxlen=5)

    def add(self, record: Record) -> None:
        with self._lock:
            self._groups.setdefault(record.group, []).append(record)
            if record.scored is None:
                self._lately.append(record)
            if self._told is not None:
                self._told(record)

    def take(self, group: int) -> list[Record]:
        """The records of a group, which are then forgotten."""
        with self._lock:
            return self._groups.pop(group, [])

    def take_all(self) -> list[Record]:
        """The records of every group, by its number: what is left where no group is to be completed any more."""
        with self._lock:
            groups, self._groups = self._groups, {}
            return [record for _, group in sorted(groups.items()) for record in group]

    def latest_causes(self) -> str:
        """The last few failures as one sentence each."""
        with self._lock:
            return "; ".join(f"{record.harness}: {record.cause}: {record.sentence}" for record in self._lately)


def scored_from(result: HarborResult) -> Scored | None:
    """What rewards are made from; None where the rollout has no reward.

    Tool calls are counted by the harness's own trajectory, and by the captured turns where it keeps none.
    """
    if result.reward is None:
        return None
    return Scored(
        harness=result.harness,
        correct=result.reward,
        tool_calls=_tool_calls(result),
        turns=result.counts.get("turns", 0),
        tokens=result.counts.get("sampled_tokens", 0),
        flags=tuple(result.flags),
        rewards=dict(result.rewards),
    )


def _tool_calls(result: HarborResult) -> int:
    own = count_tool_calls(result.harness_trace())
    if own is not None:
        return own  # also 0: what was sampled as a call need not have been one to the harness
    return sum(len(turn["reply"].get("tool_calls") or ()) for turn in trained_turns(result.compact_trace()))


def trained_turns(trace: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The turns of a compact trace that are trained."""
    return [turn for turn in trace["turns"] if turn["trained"]] if trace else []


def weight_versions(trace: dict[str, Any] | None) -> int:
    """How many weight versions sampled a trace's trained turns, 0 where the engine names none."""
    spans = [span for turn in trained_turns(trace) for span in turn["facts"].get("weights") or ()]
    return len({str(version) for version, *_ in spans})


def tokens_of(trace: dict[str, Any] | None) -> tuple[int, int]:
    """Trained tokens, and those that are only context, each once however many rows it stands in."""
    trained = sum(len(turn["sampled_ids"]) for turn in trained_turns(trace))
    turns = trace["turns"] if trace else []
    return trained, sum(len(turn["delta_ids"]) + len(turn["sampled_ids"]) for turn in turns) - trained
