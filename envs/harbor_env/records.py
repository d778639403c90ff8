"""The files a batch of rollouts leaves in its folder, and what can be read back from them after any interruption.

`results.jsonl` grows by a line with each try while a batch runs and has one line per rollout when it ends; of several
lines with one name the last counts. `rows.jsonl` is made from the results whenever a batch ends, so it never holds a
row twice or one of a failed rollout.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from harbor_env.atif import AtifCheck
from harbor_env.errors import UsageError
from harbor_env.outcome import INFRASTRUCTURE, Reason, RolloutResult
from harbor_env.whole_file import write_whole

RESULTS = "results.jsonl"
ROWS = "rows.jsonl"


def append_result(out: Path, result: RolloutResult) -> None:
    """Add one line, on disk when this returns. A line that a crash cut short is ended first, or it would eat this."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / RESULTS).open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
            file.write(b"\n" if torn else b"")
        file.write(_line(result))
        file.flush()
        os.fsync(file.fileno())


def read_results(out: Path) -> dict[str, RolloutResult]:
    """The last result of every rollout by name; a line cut by a crash is skipped.

    UsageError: a line is whole and no result as this version writes them. Left out, it would be lost with the next run.
    """
    path = out / RESULTS
    if not path.is_file():
        return {}
    found: dict[str, RolloutResult] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            result = result_from_json(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{path}, line {number}, is no result as this version writes them ({error}): give another --out, or use"
                " the version that wrote it."
            ) from error
        found[result.name] = result
    return found


def result_from_json(document: Mapping[str, Any]) -> RolloutResult:
    """A result as `asdict` made it. TypeError or ValueError: not such a document."""
    values = dict(document)
    values["reason"] = Reason(**values["reason"]) if values.get("reason") else None
    values["atif"] = AtifCheck(**(values.get("atif") or {"status": "none"}))
    values |= {name: tuple(values.get(name) or ()) for name in ("flags", "planted")}
    values["earlier"] = tuple(Reason(**reason) for reason in values.get("earlier") or ())
    return RolloutResult(**values)


def settled(result: RolloutResult) -> bool:
    """Whether running it again could only repeat it: it scored, or it failed by what the policy did."""
    return result.reason is None or result.reason.kind not in INFRASTRUCTURE


def write_results(out: Path, results: Iterable[RolloutResult]) -> None:
    """Write `results.jsonl` anew, a line per rollout; whoever reads it meanwhile sees the old file or the new one."""
    write_whole(out / RESULTS, (_line(result) for result in results))


def write_rows(out: Path, results: Iterable[RolloutResult]) -> int:
    """Write `rows.jsonl`: the rows of every rollout that scored, each with its rollout, task, harness and reward."""
    rows = (row for result in results for row in scored_rows(out, result))
    return write_whole(out / ROWS, (orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))


def scored_rows(out: Path, result: RolloutResult) -> Iterator[dict[str, Any]]:
    """The rows of one rollout, none where it did not score."""
    path = out / result.rows
    if not result.ok or not result.rows or not path.is_file():
        return
    about = {"rollout": result.name, "task": result.task, "harness": result.harness, "reward": result.reward}
    for line in path.read_bytes().splitlines():
        yield {**about, **orjson.loads(line)}


def _line(result: RolloutResult) -> bytes:
    return orjson.dumps(asdict(result), option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
