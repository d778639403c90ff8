"""Checks what a training run left: every step, every harness, the importance ratio before the first step, the rewards.

    .cache/engine/bin/python scripts/check_training.py OUTPUT_DIR --steps 3 --harnesses A,B [--close 0.001]

Prints one line per fact and exits with 1 where one does not hold. The defaults are for trainer and engine in float32,
where a token's log probabilities lie some 1e-5 apart; in bfloat16 single tokens lie up to 0.4 apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trl_integration.line_files import read_lines
from trl_integration.metrics import audit
from trl_integration.records import read_records
from trl_integration.rewards import STANDARD

Fact = tuple[bool, str]


def facts(
    folder: Path, steps: int, harnesses: list[str], *, close: float = 1e-3, token_close: float = 1e-3, standard: bool
) -> Iterator[Fact]:
    logged = list(read_lines(folder / "log.jsonl"))
    by_step: dict[int, dict[str, Any]] = {entry["step"]: entry for entry in logged if "loss" in entry}
    yield set(range(1, steps + 1)) <= set(by_step), f"steps logged: {sorted(by_step)}"
    first = by_step.get(1, {})
    rows = [first.get(f"ratio/row_{end}") for end in ("min", "max")]
    near = all(isinstance(value, float) and abs(value - 1) <= close for value in rows)
    yield near, f"importance ratio of rows at step 1: {rows[0]} to {rows[1]}"
    apart = first.get("ratio/token_log_max")
    near = isinstance(apart, float) and apart <= token_close
    yield near, f"log probabilities of one token at step 1: up to {apart} apart"
    for harness in harnesses:
        trained = [step for step, entry in by_step.items() if f"harness/{harness}/ratio" in entry]
        yield bool(trained), f"{harness} was trained in steps {trained}"
    records = read_records(folder / "rollouts.jsonl")
    scored = [record for record in records if record.scored is not None]
    yield bool(scored), f"{len(records)} rollouts, {len(scored)} scored"
    strange = sum(entry.get("groups/reward_wrong_total") or 0 for entry in logged)
    yield not strange, f"{strange:g} rewards trained that no rollout has"
    found = audit(records, STANDARD)
    told = f"{found.without_contrast} without contrast, {found.bonus_only} whose only contrast was the bonus"
    yield True, f"{found.groups} groups: {told}"
    if standard:
        yield not found.wrong, f"{len(scored)} rewards recomputed, {len(found.wrong)} wrong {found.wrong[:3]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--harnesses", required=True)
    parser.add_argument("--close", type=float, default=1e-3, help="how near to 1 the first ratios are")
    parser.add_argument("--token-close", type=float, default=1e-3, help="how near the first tokens' log probabilities")
    parser.add_argument("--own-reward", action="store_true", help="the run had a reward of its own: do not recompute")
    args = parser.parse_args()
    fine = True
    near = {"close": args.close, "token_close": args.token_close}
    found = facts(args.folder, args.steps, args.harnesses.split(","), **near, standard=not args.own_reward)
    for holds, told in found:
        print("ok   " if holds else "WRONG", told)
        fine = fine and holds
    sys.exit(not fine)


if __name__ == "__main__":
    main()
