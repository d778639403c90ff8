"""Recompute exported log probabilities with transformers in float32 and say how far off the captured ones are.

    openenv-harbor export ROLLOUTS --format rows --out rows.jsonl
    .cache/engine/bin/python scripts/check_logprobs.py rows.jsonl --model .cache/models/smollm2

Reads JSON lines with `input_ids`, `loss_mask` and `logprobs` of one length; only places with mask 1 are compared.
Prints one line per row and exits with 1 when any difference is above `--tolerance`, or no place was compared. The model
must be the one that sampled, at `--temperature`. An engine that computes in another precision differs by more:
bfloat16, or llama.cpp on a quantised file, which quantises activations too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def read_rows(files: list[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        with file.open() as lines:
            yield from (json.loads(line) for line in lines if line.strip())


@torch.inference_mode()
def differences(model: Any, row: dict[str, Any], temperature: float) -> torch.Tensor:
    """Absolute differences at the places with mask 1; NaN where the row holds no log probability."""
    ids, mask = torch.tensor(row["input_ids"]), torch.tensor(row["loss_mask"], dtype=torch.bool)
    captured = torch.tensor(
        [float("nan") if value is None else value for value in row["logprobs"]], dtype=torch.float64
    )
    if not len(ids) == len(mask) == len(captured):
        raise SystemExit(f"{name_of(row)}: {len(ids)} ids, {len(mask)} mask, {len(captured)} log probabilities")
    places = mask.nonzero().flatten()
    if not len(places):
        return torch.zeros(0)
    # The logits that predict a token stand one place before it.
    logits = model(ids[None], logits_to_keep=places - 1).logits[0]
    recomputed = torch.log_softmax(logits.double() / temperature, dim=-1).gather(1, ids[places, None]).flatten()
    return (recomputed - captured[places]).abs()


def name_of(row: dict[str, Any]) -> str:
    return f"{row.get('session_id', 'session')} row {row.get('row', '?')}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", required=True, help="a Hugging Face folder or id")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="largest difference allowed, in nats")
    args = parser.parse_args()

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    rows = tokens = bad = 0
    worst = 0.0
    for row in read_rows(args.files):
        found = differences(model, row, args.temperature)
        largest = float(found.max()) if len(found) else 0.0
        wrong = int((~(found <= args.tolerance)).sum())
        print(f"{name_of(row)}: {len(row['input_ids'])} ids, {len(found)} sampled, max difference {largest:.2e}")
        rows, tokens, bad, worst = rows + 1, tokens + len(found), bad + wrong, max(worst, largest)
    verdict = "ok" if tokens and not bad else "FAILED"
    print(
        f"{verdict}: {rows} rows, {tokens} sampled tokens, max difference {worst:.2e}, {bad} above {args.tolerance:g}"
    )
    return 0 if tokens and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
