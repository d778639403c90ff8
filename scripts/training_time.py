"""How many rollouts an hour a training run made, and where its time went: the trainer's, and a rollout's.

    .cache/engine/bin/python scripts/training_time.py OUTPUT_DIR [...]

Reads what scripts/train.py writes. The first step of every start has no duration and is left out of the trainer's time.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl_integration.line_files import read_lines
from trl_integration.output_folder import LOG, ROLLOUTS
from trl_integration.records import Record, read_records

PARTS = {
    "waiting for rollouts": "perf/rollout_wait_s",
    "forward and backward": "perf/fwd_bwd_s",
    "weights to the engine": "perf/weight_sync_s",
    "optimizer": "perf/optimizer_s",
}


def trainers_time(log: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Seconds by part over all steps with a duration; `all` is their sum, `other` what no part accounts for."""
    steps = [entry for entry in log if "perf/step_s" in entry]
    found = {part: sum(float(entry.get(key) or 0) for entry in steps) for part, key in PARTS.items()}
    whole = sum(float(entry["perf/step_s"]) for entry in steps)
    return {**found, "other": whole - sum(found.values()), "all": whole}


def rollouts_time(records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Mean seconds by harness and stage over the rollouts that have them."""
    by_harness: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        for stage, seconds in record.seconds.items():
            by_harness[record.harness][stage].append(seconds)
    return {
        harness: {stage: sum(values) / len(values) for stage, values in stages.items()}
        for harness, stages in sorted(by_harness.items())
    }


def told(folder: Path) -> str:
    log = list(read_lines(folder / LOG))
    records = read_records(folder / ROLLOUTS)
    time = trainers_time(log)
    steps = sum("perf/step_s" in entry for entry in log)
    untimed = sum("loss" in entry and "perf/step_s" not in entry for entry in log)
    scored = sum(record.scored is not None for record in records)
    whole = time.pop("all")
    if not whole:
        return f"{folder.name}: no step with a duration yet"
    # The rollouts of the steps without a duration are counted, their seconds are not: their share is taken off.
    hourly = scored * steps / (steps + untimed) / whole * 3600
    parts = ", ".join(f"{part} {seconds / whole:.0%}" for part, seconds in time.items())
    lines = [f"{folder.name}: {steps} steps of {whole / steps:.1f} s, {hourly:.0f} scored rollouts an hour; {parts}"]
    for harness, stages in rollouts_time(records).items():
        lines.append(f"  {harness}: " + ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in stages.items()))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        print(told(folder))


if __name__ == "__main__":
    main()
