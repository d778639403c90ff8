"""Chooses supervised examples from batches of rollouts: solved ones, exact ids, so many of each family and harness.

    scripts/collect_sft.py BATCH [BATCH ...] --out sft.jsonl [--per-family 3]

A batch is a folder `openenv-harbor rollout --out` left. An example is one training row of the first solved attempt of a
task in a harness: `input_ids`, and `completion_mask` 1 on what the assistant said. A family is the task's name without
its number. Prints how many examples each harness gave.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harbor_env.errors import UsageError
from harbor_env.outcome import RolloutResult
from harbor_env.records import RESULTS, read_results, scored_rows
from harbor_env.reward import PASSED
from harbor_env.whole_file import write_whole


def solved(batch: Path) -> Iterator[tuple[RolloutResult, dict[str, Any]]]:
    """(result, row) of the first solved rollout of each task in each harness; one of several rows is passed over."""
    seen: set[tuple[str, str]] = set()
    for result in read_results(batch).values():
        key = (result.task, result.harness)
        if result.reward is None or result.reward < PASSED or key in seen:
            continue
        trained = [row for row in scored_rows(batch, result) if row["trained_tokens"]]
        if len(trained) == 1:
            seen.add(key)
            yield result, trained[0]


def family(task: str) -> str:
    return re.sub(r"-\d+$", "", task)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-family", type=int, default=0, help="at most so many of a family in a harness")
    args = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    lines: list[bytes] = []
    for batch in args.batches:
        if not (batch / RESULTS).is_file():
            sys.exit(f"collect_sft.py: {batch} is no batch of rollouts: it has no {RESULTS}")
        for result, row in solved(batch):
            key = (result.harness, family(result.task))
            if args.per_family and counts[key] >= args.per_family:
                continue
            counts[key] += 1
            example = {"input_ids": row["input_ids"], "completion_mask": row["loss_mask"]}
            lines.append(json.dumps({**example, "task": result.task, "harness": result.harness}).encode() + b"\n")
    if not counts:
        sys.exit("collect_sft.py: no rollout was solved; nothing to learn from")
    write_whole(args.out, lines)
    for harness in sorted({harness for harness, _ in counts}):
        print(harness, sum(count for (name, _), count in counts.items() if name == harness))


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(f"collect_sft.py: {error}")
