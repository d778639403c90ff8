"""The rollouts of a batch as its folder keeps them: what each turn was asked and sampled, and the gateway's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.rows import Row, Step, Taken, chained
from harbor_env.errors import UsageError
from harbor_env.gateway.export.trace import expand
from harbor_env.records import RESULTS, read_results

Json = dict[str, Any]
Requests = Mapping[str, tuple[str, Json]]
"""Path and body by turn."""
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Rollout:
    """A rollout that scored: its compact trace and its rows, as the gateway exported them."""

    name: str
    harness: str
    trace: Json
    exported: list[Json]

    @property
    def sampled(self) -> dict[str, int]:
        """Sampled tokens by turn."""
        return {turn["id"]: len(turn["sampled_ids"]) for turn in self.trace["turns"]}

    def asked(self) -> list[Json]:
        """Its turns in the order in which they were asked."""
        return sorted(self.trace["turns"], key=lambda turn: turn["facts"].get("began", 0.0))

    def requests(self, told: Callable[[Json], Json] = lambda turn: dict(turn["reply"])) -> Requests:
        """What each turn was asked, as Chat Completions; `told` gives the reply to a turn before it."""
        said: dict[str | None, list[Json]] = {None: []}
        found = {}
        for turn in self.trace["turns"]:
            messages = [*said[turn["parent"]], *turn["messages"]]
            said[turn["id"]] = [*messages, told(turn)]
            tools = self.trace["tools"].get(turn["context"])
            body = {"model": "policy", "messages": messages, **({"tools": tools} if tools else {})}
            found[turn["id"]] = (CHAT, body)
        return found

    def rows(self) -> Taken:
        """What the gateway's `rows` export trains."""
        rows = [
            Row(row["input_ids"], [span["turn"] for span in row["turns"] if span["trained"]]) for row in self.exported
        ]
        return Taken(self.sampled, [row for row in rows if row.trained])

    def traced(self) -> Taken:
        """What TRL makes of the gateway's training trace."""
        turns = expand(self.trace).turns
        steps = (Step(t.node_id, t.prompt_token_ids, t.completion_token_ids, any(t.loss_mask)) for t in turns)
        return Taken(self.sampled, chained(steps))


def batches(folder: Path) -> list[Path]:
    """A batch's folder, or those in an evaluation's. UsageError: there is none."""
    found = [folder] if (folder / RESULTS).is_file() else sorted(path.parent for path in folder.glob(f"*/{RESULTS}"))
    if not found:
        raise UsageError(f"There is no batch of rollouts in {folder}.")
    return found


def tokenizer_of(batch: Path) -> str:
    """The tokenizer the batch was run with, "" where it does not say."""
    try:
        settings: Mapping[str, Any] = orjson.loads((batch / "batch.json").read_bytes())["settings"]
    except (OSError, orjson.JSONDecodeError, KeyError):
        return ""
    return str(settings.get("tokenizer") or "")


def scored(batch: Path) -> Iterator[Rollout]:
    """Those that scored and whose tokens were captured, in the batch's order."""
    for _, result in sorted(read_results(batch).items()):
        if not result.ok or not result.rows or result.level != "tokens":
            continue
        trace = orjson.loads((batch / result.trace).read_bytes())
        rows = [orjson.loads(line) for line in (batch / result.rows).read_bytes().splitlines()]
        yield Rollout(result.name, result.harness, trace, rows)
