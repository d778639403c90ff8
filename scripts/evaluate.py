"""Evaluates a served model on a split in several harnesses, and compares evaluations.

    scripts/evaluate.py run --name sft --out EVALS --dataset TASKS --split all --harness mini-swe-agent,pi --samples 2 \
        -- --llm-url http://127.0.0.1:8000 --model policy --tokenizer MODEL --concurrency 8
    scripts/evaluate.py compare EVALS/base EVALS/sft EVALS/rl [--json]

`run` is a resumable batch of `openenv-harbor rollout` per harness; what stands after `--` goes to it. `compare` prints
pass@1 per harness with 95 % intervals over tasks, and each evaluation against the first, paired by task; tool calls and
tokens are compared on tasks both passed. A number below is a mean over tasks; unscorable rollouts are counted apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harbor_env.errors import UsageError
from harbor_env.records import RESULTS, read_results
from trl_integration.compare import Sample, by_harness, change, pass_rate, samples_of


def run(args: argparse.Namespace) -> None:
    for harness in args.harness.split(","):
        out = args.out / args.name / harness.replace(":", "-")
        command = [sys.executable, "-m", "harbor_env.cli", "rollout", "--purpose", "eval", "--out", str(out)]
        command += ["--dataset", args.dataset, "--split", args.split, "-n", str(args.tasks), "--harness", harness]
        command += ["--attempts", str(args.samples), *args.rest]
        done = subprocess.run(command, check=False)
        if done.returncode:
            sys.exit(done.returncode)


def load(folder: Path) -> dict[str, list[Sample]]:
    """The samples of an evaluation by harness: every rollout once, as its last try left it."""
    batches = sorted(path.parent for path in folder.glob(f"*/{RESULTS}"))
    results = [asdict(result) for batch in batches for result in read_results(batch).values()]
    if not results:
        raise UsageError(f"There is no evaluation in {folder}.")
    return by_harness(samples_of(results))


def table(folders: list[Path]) -> list[dict[str, Any]]:
    """One entry per evaluation and harness: pass@1, and the change from the first evaluation."""
    first = load(folders[0])
    entries = []
    for folder in folders:
        for harness, samples in load(folder).items():
            entry: dict[str, Any] = {"evaluation": folder.name, "harness": harness}
            entry["pass_at_1"] = asdict(pass_rate(samples))
            if folder != folders[0] and harness in first:
                changed = asdict(change(first[harness], samples))
                changed.pop("cells")
                entry["change"] = changed
            entries.append(entry)
    return entries


def show(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        rate = entry["pass_at_1"]
        line = f"{entry['evaluation']:16} {entry['harness']:20} {interval(rate)}  {rate['tasks']} tasks"
        if rate["unscorable"]:
            line += f", {rate['unscorable']} unscorable"
        if "change" in entry:
            told = entry["change"]
            before, after = told["tool_calls"]
            line += f"   change {interval(told['passed'], sign='+')}, tool calls {before:.2f} -> {after:.2f}"
            line += f" on {told['both_passed']} tasks both passed"
        print(line)


def interval(estimate: dict[str, Any], sign: str = "") -> str:
    return f"{estimate['mean']:{sign}.3f} [{estimate['low']:{sign}.3f}, {estimate['high']:{sign}.3f}]"


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
    compares.set_defaults(
        do=lambda args: print(json.dumps(table(args.folders), indent=1)) if args.json else show(table(args.folders))
    )
    args = parser.parse_args()
    try:
        args.do(args)
    except UsageError as error:
        sys.exit(f"evaluate.py: {error}")


if __name__ == "__main__":
    main()
