"""What a trainer would get of the same rollouts through the gateway and through OpenEnv's capture proxy.

    scripts/compare_rows.py ROLLOUTS [...] [--tokenizer DIR] [--requests FILE] [--batch 24] [--json FILE]

ROLLOUTS is the folder of a batch (`openenv-harbor rollout --out`) or of an evaluation; what the gateway trains is in
it. Each turn's request is sent again to OpenEnv's proxy, whose engine answers with the very tokens that were sampled.

Requests are those the gateway's traces tell: every message and tool as it was understood, and of replies what the
gateway told the harness. `--requests` takes what harnesses sent instead, as `bench/tap.py` noted it. A second replay
says of earlier replies what vLLM's Hermes parser tells a harness: the same calls, text to the letter.

Prints Markdown. Numbers are means over rollouts that scored. Trained once: of the sampled tokens, those with mask 1 in
exactly one row. Padded: rows in the rollouts' order, cut into batches of `--batch`, each row as long as the longest of
its batch, as TRL's `GRPOTrainer` does. Packed: the same batches as prefix trees, as its `AsyncGRPOTrainer` does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp
from bench.programs import command, free_port, running
from bench.recorded import Requests, Rollout, batches, scored, tokenizer_of
from bench.replay import Peer
from bench.replay_engine import ReplayEngine, served
from bench.rows import Taken, measured
from bench.tap import noted
from transformers import AutoTokenizer

from harbor_env.errors import UsageError

EXPORTED, TRACED = "Rows as each exports them", "Rows TRL's harness worker makes of each training trace"
GATEWAY, SAME, WORDED = "gateway", "openenv 0.10, the same requests", "openenv 0.10, vLLM's own words"
PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=60)
HEADINGS = ("harness", "capture", "rollouts", "turns", "refused", "rows", "tokens", "trained", "trained once")
Captures = dict[str, dict[tuple[str, str], list[Taken]]]
"""By table, harness and capture: every rollout."""


async def compare(rollouts: Mapping[str, Sequence[Rollout]], tokenizer: str, requests: Path | None) -> Captures:
    """Every rollout, by harness, through both captures."""
    engine, engine_port, port = ReplayEngine(AutoTokenizer.from_pretrained(tokenizer)), free_port(), free_port()
    bodies = noted(requests) if requests else None
    turns = {turn for found in rollouts.values() for rollout in found for turn in rollout.sampled}
    if bodies is not None and (missing := len(turns - bodies.keys())):
        raise UsageError(f"{requests} lacks the requests of {missing} of {len(turns)} turns.")
    captures: Captures = {}
    with running(command("bench.peer", port, f"http://127.0.0.1:{engine_port}"), port) as proxy:
        async with served(engine, engine_port), aiohttp.ClientSession(timeout=PATIENCE) as http:
            peer = Peer(proxy.url, engine, http)
            for harness, found in rollouts.items():
                for rollout in found:
                    for capture, table, taken in await taken_of(rollout, peer, bodies):
                        captures.setdefault(table, {}).setdefault((harness, capture), []).append(taken)
    return captures


async def taken_of(rollout: Rollout, peer: Peer, bodies: Requests | None) -> list[tuple[str, str, Taken]]:
    """The rollout by capture and table."""
    found = [(GATEWAY, EXPORTED, rollout.rows()), (GATEWAY, TRACED, rollout.traced())]
    for capture, asked in (
        (SAME, bodies or rollout.requests()),
        (WORDED, rollout.requests(peer.engine.told)),
    ):
        exported, traced = await peer.replayed(rollout, asked)
        found += [(capture, EXPORTED, exported), (capture, TRACED, traced)]
    return found


def by_harness(folders: Sequence[Path]) -> dict[str, list[Rollout]]:
    """The rollouts that scored. UsageError: there is none."""
    found: dict[str, list[Rollout]] = {}
    for folder in folders:
        for batch in batches(folder):
            for rollout in scored(batch):
                found.setdefault(rollout.harness, []).append(rollout)
    if not found:
        raise UsageError("No rollout there scored and has its tokens.")
    return found


def line(harness: str, capture: str, counts: dict[str, float]) -> list[str]:
    """A line of the table; counts of rows and tokens per rollout."""
    each = {name: value / counts["rollouts"] for name, value in counts.items()}
    once = 100 * counts["trained_once"] / counts["sampled"] if counts["sampled"] else 0.0
    told = [f"{counts[name]:.0f}" for name in ("rollouts", "turns", "refused")]
    told += [f"{each['rows']:.2f}", *(f"{each[name]:.1f}" for name in ("tokens", "trained")), f"{once:.1f} %"]
    return [harness, capture, *told, *(f"{each[name]:.1f}" for name in ("padded", "packed"))]


def markdown(title: str, lines: Sequence[Sequence[str]], batch: int) -> str:
    headings = [*HEADINGS, f"padded, {batch} rows", f"packed, {batch} rows"]
    table = [headings, ["---"] * len(headings), *lines]
    return f"### {title}\n\n" + "\n".join("| " + " | ".join(cells) + " |" for cells in table) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="ROLLOUTS")
    parser.add_argument("--tokenizer", default="", help="a folder with a chat template; else the batch's own")
    parser.add_argument("--requests", type=Path, help="the harnesses' requests, as bench/tap.py noted them")
    parser.add_argument("--batch", type=int, default=24, help="rows of a training batch")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    given = parser.parse_args()
    try:
        tokenizer = given.tokenizer or tokenizer_of(batches(given.folders[0])[0])
        if not Path(tokenizer, "tokenizer_config.json").is_file():
            raise UsageError(f"--tokenizer names a folder with a tokenizer and a chat template; not {tokenizer!r}.")
        captures = asyncio.run(compare(by_harness(given.folders), tokenizer, given.requests))
    except UsageError as error:
        sys.exit(f"compare_rows.py: {error}")
    counts = {
        title: [(*key, measured(taken, given.batch)) for key, taken in table.items()]
        for title, table in captures.items()
    }
    for title, lines in counts.items():
        print(markdown(title, [line(*cells) for cells in lines], given.batch))
    if given.json:
        told = [
            {"table": title, "harness": harness, "capture": capture, **numbers}
            for title, lines in counts.items()
            for harness, capture, numbers in lines
        ]
        given.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
