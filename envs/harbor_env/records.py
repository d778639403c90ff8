"""The files a batch of rollouts leaves in its folder, and what can be read back from them after any interruption.

`results.jsonl` has one line per finished attempt; of several lines with one name the last counts. `rows.jsonl` is made
from the results whenever a batch ends, so it never holds a row twice or one of a failed rollout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from harbor_env.atif import AtifCheck
from harbor_env.outcome import INFRASTRUCTURE, Reason
from harbor_env.rollout import RolloutResult

RESULTS = "results.jsonl"
ROWS = "rows.jsonl"


def append_result(out: Path, result: RolloutResult) -> None:
    """Add one line. The file is opened for each, so that nothing is left in a buffer."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / RESULTS).open("ab") as file:
        file.write(orjson.dumps(asdict(result), option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY))


def read_results(out: Path) -> dict[str, RolloutResult]:
    """The last result of every rollout by name; a line cut by a crash is skipped."""
    path = out / RESULTS
    if not path.is_file():
        return {}
    found: dict[str, RolloutResult] = {}
    for line in path.read_bytes().splitlines():
        try:
            result = result_from_json(orjson.loads(line))
        except (orjson.JSONDecodeError, TypeError):
            continue
        found[result.name] = result
    return found


def result_from_json(document: Mapping[str, Any]) -> RolloutResult:
    """A result as `asdict` made it. TypeError: not such a document."""
    values = dict(document)
    values["reason"] = Reason(**values["reason"]) if values.get("reason") else None
    values["atif"] = AtifCheck(**(values.get("atif") or {"status": "none"}))
    values["flags"] = tuple(values.get("flags") or ())
    return RolloutResult(**values)


def settled(result: RolloutResult) -> bool:
    """Whether running it again could only repeat it: it scored, or it failed by what the policy did."""
    return result.reason is None or result.reason.kind not in INFRASTRUCTURE


def write_rows(out: Path, results: Iterable[RolloutResult]) -> int:
    """Write `rows.jsonl`: the rows of every rollout that scored, each with its rollout, task, harness and reward."""
    part = out / f".{ROWS}.part"
    count = 0
    with part.open("wb") as file:
        for result in results:
            for row in _rows(out, result):
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
    part.replace(out / ROWS)
    return count


def _rows(out: Path, result: RolloutResult) -> Iterable[dict[str, Any]]:
    path = out / result.rows
    if not result.ok or not result.rows or not path.is_file():
        return
    about = {"rollout": result.name, "task": result.task, "harness": result.harness, "reward": result.reward}
    for line in path.read_bytes().splitlines():
        yield {**about, **orjson.loads(line)}
