"""Plots training runs: reward, pass rate, tool calls and importance ratio of each run and harness over the steps.

    .cache/engine/bin/python scripts/plot.py OUT/log.jsonl [OTHER/log.jsonl ...] --out learning.png [--window 8]

Each log is what scripts/train.py writes. A line is a mean over `--window` steps: one step is a handful of tasks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from trl_integration.line_files import read_lines

PANELS = {"reward": "reward", "pass_rate": "pass rate", "tool_calls": "tool calls", "ratio": "importance ratio"}
"""What is plotted of a metric `harness/NAME/...`, by its last word."""

Curve = tuple[list[int], list[float]]
"""Steps and values."""


def series(path: Path, name: str) -> dict[str, list[tuple[int, float]]]:
    """(step, value) per harness of the metric `harness/HARNESS/name`."""
    found: dict[str, list[tuple[int, float]]] = {}
    for entry in read_lines(path):
        for key, value in entry.items():
            prefix, _, rest = key.partition("/")
            harness, _, metric = rest.rpartition("/")
            if prefix == "harness" and metric == name and isinstance(value, int | float) and value == value:
                found.setdefault(harness, []).append((entry["step"], value))
    return found


def curves(logs: Sequence[Path], name: str, window: int) -> dict[str, Curve]:
    """The smoothed metric by run and harness."""
    return {
        f"{log.parent.name}: {harness}": smoothed(points, window)
        for log in logs
        for harness, points in series(log, name).items()
    }


def smoothed(points: list[tuple[int, float]], window: int) -> Curve:
    steps, values = [], []
    for end in range(len(points)):
        recent = points[max(0, end - window + 1) : end + 1]
        steps.append(points[end][0])
        values.append(sum(value for _, value in recent) / len(recent))
    return steps, values


def draw(logs: Sequence[Path], out: Path, window: int) -> None:
    import matplotlib as mpl  # only engines' environments have it

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(PANELS), figsize=(5 * len(PANELS), 3.6), constrained_layout=True)
    for axis, (metric, meant) in zip(axes, PANELS.items(), strict=True):
        for label, curve in curves(logs, metric, window).items():
            axis.plot(*curve, label=label)
        axis.set(xlabel="step", ylabel=meant)
    axes[0].legend(fontsize=7)
    figure.savefig(out, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--window", type=int, default=8)
    args = parser.parse_args()
    missing = [str(log) for log in args.logs if not log.is_file()]
    if missing or args.window < 1:
        sys.exit(f"plot.py: {f'there is no {missing[0]}' if missing else '--window is at least 1'}")
    draw(args.logs, args.out, args.window)


if __name__ == "__main__":
    main()
