"""Plots a training run: reward, pass rate and importance ratio per harness over the steps, and evaluations beside it.

    .cache/engine/bin/python scripts/plot.py OUT/log.jsonl [OTHER/log.jsonl ...] --out learning.png [--window 8]

Each log is what scripts/train.py writes. A line is a mean over `--window` steps: one step is a handful of tasks.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

PANELS = {"pass_rate": "pass rate", "tool_calls": "tool calls", "ratio": "importance ratio"}


def series(path: Path, name: str) -> dict[str, list[tuple[int, float]]]:
    """(step, value) per harness of the metric `harness/HARNESS/name`."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in path.read_text().splitlines():
        entry: dict[str, Any] = json.loads(line)
        for key, value in entry.items():
            prefix, _, rest = key.partition("/")
            harness, _, metric = rest.rpartition("/")
            if prefix == "harness" and metric == name and isinstance(value, int | float) and value == value:
                found.setdefault(harness, []).append((entry["step"], value))
    return found


def smoothed(points: list[tuple[int, float]], window: int) -> tuple[list[int], list[float]]:
    steps, values = [], []
    for end in range(len(points)):
        recent = points[max(0, end - window + 1) : end + 1]
        steps.append(points[end][0])
        values.append(sum(value for _, value in recent) / len(recent))
    return steps, values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--window", type=int, default=8)
    args = parser.parse_args()
    figure, axes = plt.subplots(1, len(PANELS), figsize=(5 * len(PANELS), 3.6), constrained_layout=True)
    for axis, (metric, label) in zip(axes, PANELS.items(), strict=True):
        for log in args.logs:
            for harness, points in series(log, metric).items():
                axis.plot(*smoothed(points, args.window), label=f"{log.parent.name}: {harness}")
        axis.set(xlabel="step", ylabel=label)
    axes[0].legend(fontsize=7)
    figure.savefig(args.out, dpi=130)


if __name__ == "__main__":
    main()
