"""Evaluates a served model on a split in several harnesses, and compares evaluations.

    scripts/evaluate.py run --name sft --out EVALS --dataset TASKS --split all --harness mini-swe-agent,pi \\
        --samples 2 -- --llm-url http://127.0.0.1:8000 --model policy --tokenizer MODEL --concurrency 8
    scripts/evaluate.py compare EVALS/base EVALS/sft EVALS/rl [--cells] [--json]

`run` is a resumable batch of `openenv-harbor rollout` per harness; what stands after `--` goes to it. All harnesses
run, then it exits with the worst status of theirs: 3 where in one nothing was scored. `compare` prints pass@1 per
harness with 95 % intervals over tasks, and each evaluation against the first, paired by task; tool calls, as the
harness counts them where it does, and sampled tokens are compared on tasks both passed. A number is a mean over tasks;
unscorable rollouts are counted apart. With `--cells` it tells every task, before and after.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harbor_env.atif import count_tool_calls
from harbor_env.capture import read_json
from harbor_env.errors import UsageError
from harbor_env.outcome import RolloutResult
from harbor_env.records import RESULTS, read_results
from trl_integration.compare import Sample, by_harness, change, pass_rate, samples_of

NOTHING_SCORED, INTERRUPTED = 3, 130
"""Exit statuses of `openenv-harbor rollout`; others that are not 0 are errors."""


def run(args: argparse.Namespace) -> None:
    sys.exit(run_all(command(args, harness) for harness in args.harness.split(",")))


def command(args: argparse.Namespace, harness: str) -> list[str]:
    out = args.out / args.name / harness.replace(":", "-")
    words = [sys.executable, "-m", "harbor_env.cli", "rollout", "--purpose", "eval", "--out", str(out)]
    words += ["--dataset", args.dataset, "--split", args.split, "-n", str(args.tasks), "--harness", harness]
    return [*words, "--attempts", str(args.samples), *args.rest]


def run_all(commands: Iterable[Sequence[str]]) -> int:
    """Run each after the other, also where one fails; returns the worst status. An interruption ends them all."""
    worst = 0
    with Running().heeding_signals() as running:
        for words in commands:
            status = running.status_of(words)
            if running.told or status in (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM):
                return INTERRUPTED
            status = status if status >= 0 else 128 - status
            worst = max(worst, status, key=lambda one: (one not in (0, NOTHING_SCORED), one))
    return worst


class Running:
    """The command that runs. What ends this process is passed on to it, and it ends in its own order.

    `told`: an end was asked for.
    """

    def __init__(self) -> None:
        self.told = False
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def heeding_signals(self) -> Iterator[Running]:
        before = {number: signal.signal(number, self._tell) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _tell(self, number: int, frame: object) -> None:
        self.told = True
        if self._process is not None:
            self._process.terminate()

    def status_of(self, words: Sequence[str]) -> int:
        self._process = subprocess.Popen(words)
        if self.told:
            self._process.terminate()
        return self._process.wait()


def load(folder: Path) -> dict[str, list[Sample]]:
    """The samples of an evaluation by harness: every rollout once, as its last try left it."""
    batches = sorted(path.parent for path in folder.glob(f"*/{RESULTS}"))
    results = [counted(batch, result) for batch in batches for result in read_results(batch).values()]
    if not results:
        raise UsageError(f"There is no evaluation in {folder}.")
    return by_harness(samples_of(results))


def counted(batch: Path, result: RolloutResult) -> dict[str, Any]:
    """A result with the tool calls that rewards count, the harness's own, where its trajectory is there to tell them.

    Elsewhere they are those that were sampled and not discarded.
    """
    own = count_tool_calls(read_json(batch / "logs" / result.name / "agent" / "trajectory.json"))
    return asdict(result) | {"counts": {**result.counts, **({} if own is None else {"tool_calls": own})}}


def table(folders: list[Path], *, cells: bool = False) -> list[dict[str, Any]]:
    """One entry per evaluation and harness: pass@1, and the change from the first evaluation.

    `pass_at_1` is None where no rollout was scored, `change` where no task was scored both times or there is nothing to
    compare with.
    """
    loaded = [(folder.name, load(folder)) for folder in folders]
    _, first = loaded[0]
    entries = []
    for name, evaluation in loaded:
        for harness, samples in evaluation.items():
            rate = asdict(pass_rate(samples)) if scored(samples) else None
            unscorable = sum(sample.reward is None for sample in samples)
            entry = {"evaluation": name, "harness": harness, "pass_at_1": rate, "unscorable": unscorable}
            if evaluation is not first:
                entry["change"] = changed(first.get(harness, []), samples, cells)
            entries.append(entry)
    return entries


def changed(before: list[Sample], after: list[Sample], cells: bool) -> dict[str, Any] | None:
    if not scored(before) & scored(after):
        return None
    told = asdict(change(before, after))
    if not cells:
        del told["cells"]
    # A cost that is not known is no number, and JSON has none for it.
    return told | {cost: None for cost in ("tool_calls", "tokens") if any(map(math.isnan, told[cost]))}


def scored(samples: list[Sample]) -> set[str]:
    return {sample.task for sample in samples if sample.reward is not None}


def show(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        rate = entry["pass_at_1"]
        line = f"{entry['evaluation']:16} {entry['harness']:20} "
        line += f"{interval(rate)}  {rate['tasks']} tasks" if rate else "nothing was scored"
        print(line + (f", {entry['unscorable']} unscorable" if entry["unscorable"] else ""))
        if "change" in entry:
            print(f"    change from {entries[0]['evaluation']}: {difference(entry['change'])}")
            for task, (before, after) in ((entry["change"] or {}).get("cells") or {}).items():
                print(f"        {task:48} {before:.2f} -> {after:.2f}")


def difference(told: dict[str, Any] | None) -> str:
    if told is None:
        return "no task of this harness was scored both times"
    line = f"{interval(told['passed'], sign='+')} over {told['passed']['tasks']} tasks"
    costs = [(told[cost], name) for cost, name in (("tool_calls", "tool calls"), ("tokens", "tokens")) if told[cost]]
    shown = ", ".join(f"{name} {before:.2f} -> {after:.2f}" for (before, after), name in costs)
    return line + (f"; on {told['both_passed']} tasks both passed: {shown}" if shown else "")


def interval(estimate: dict[str, Any], sign: str = "") -> str:
    return f"{estimate['mean']:{sign}.3f} [{estimate['low']:{sign}.3f}, {estimate['high']:{sign}.3f}]"


def compare(args: argparse.Namespace) -> None:
    entries = table(args.folders, cells=args.cells)
    if args.json:
        print(json.dumps(entries, indent=1))
    else:
        show(entries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="evaluate a served model")
    runs.add_argument("--name", required=True)
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--dataset", required=True)
    runs.add_argument("--split", default="all")
    runs.add_argument("--harness", default="mini-swe-agent")
    runs.add_argument("--samples", type=int, default=1)
    runs.add_argument("--tasks", type=int, default=100_000, help="at most so many tasks of the split")
    runs.add_argument("rest", nargs="*")
    runs.set_defaults(do=run)
    compares = commands.add_parser("compare", help="compare finished evaluations")
    compares.add_argument("folders", type=Path, nargs="+")
    compares.add_argument("--json", action="store_true")
    compares.add_argument("--cells", action="store_true", help="every task, before and after")
    compares.set_defaults(do=compare)
    args = parser.parse_args()
    try:
        args.do(args)
    except UsageError as error:
        sys.exit(f"evaluate.py: {error}")


if __name__ == "__main__":
    main()
