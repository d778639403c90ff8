"""Rollouts of the command line, a task for each harness and case, on one gateway with a scripted, logging engine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_env.gateway.engines.scripted_tokens import synthetic_logprob
from harbor_env.outcome import RolloutResult
from harbor_env.records import read_results, settled
from tests.live.logged_engine import Asked, keep_only, read_log
from tests.tokenizers import qwen3_dir

REPOSITORY = Path(__file__).parents[2]
TASK = REPOSITORY / "envs/harbor_env/bundled_tasks/train/l3-eight-step-trail"
HABITS = "noncanonical=0.1&odd_json=0.5&seed=11"
ENGINE = f"tests.live.logged_engine:open_logged?policy=tests.live.upsets:ByCase&log={{log}}&{HABITS}"
AGENT_SECONDS = 240
"""What a harness may take for a trail: one that hangs on a case is cut off and the next one goes on."""

Cell = tuple[str, str]
"""A harness, with its dialect where it is not its own choice, and a case."""


@dataclass(frozen=True)
class Ran:
    """One rollout: its result, the turns of its trace, its rows, and what the engine says it was asked for them."""

    result: RolloutResult
    turns: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    asked: list[Asked]

    @property
    def generations(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.error]

    @property
    def engine_errors(self) -> list[str]:
        return [asked.error for asked in self.asked if asked.error]


def slug(cell: Cell) -> str:
    """The cell as one word that pytest's -k takes and that names a folder."""
    harness, case = cell
    return f"{harness.replace('@', '.')}--{'-'.join(case.replace(',', '').split())}"


class Suite:
    """All cells on one gateway, in order, while their tests wait for them; those `out` has are not run again."""

    def __init__(self, out: Path, cells: Sequence[Cell]) -> None:
        self.out = out
        self._log = out / "engine.jsonl"
        out.mkdir(parents=True, exist_ok=True)
        there = {result.task for result in read_results(out).values() if settled(result)}
        waiting = [cell for cell in cells if slug(cell) not in there]
        for cell in waiting:
            _write_task(out / "tasks" / slug(cell), cell)
        keep_only(self._log, there)
        self._running = self._start(waiting) if waiting else None

    def ran(self, cell: Cell) -> Ran:
        """The rollout of `cell`, as soon as it is over."""
        result = self._result(slug(cell))
        turns, rows = [], []
        if result.trace:
            turns = json.loads((self.out / result.trace).read_bytes())["turns"]
            rows = [json.loads(line) for line in (self.out / result.rows).read_text().splitlines()]
        return Ran(result, turns, rows, [asked for asked in read_log(self._log) if asked.name == slug(cell)])

    def secrets(self, ran: Ran) -> list[Path]:
        """Files of a rollout, the gateway's own store left out, that name its session or hold its key."""
        found = [path for top in self.out.glob(f"*/{ran.result.name}*") for path in (top, *top.rglob("*"))]
        return [path for path in found if path.is_file() and holds_secret(path.read_bytes())]

    def close(self) -> None:
        if self._running:
            with self._running as running:
                running.terminate()

    def _start(self, cells: Sequence[Cell]) -> subprocess.Popen[str]:
        """Tasks and harnesses go in step: as many of the one as of the other."""
        command = [sys.executable, "-m", "harbor_env.cli", "rollout", "--json", "--out", str(self.out)]
        command += ["--dataset", str(self.out / "tasks"), "--harness", ",".join(harness for harness, _ in cells)]
        command += [flag for cell in cells for flag in ("--task", slug(cell))]
        command += ["--agent-timeout", str(AGENT_SECONDS), "--resume-anyway"]
        command += ["--engine", ENGINE.format(log=self._log), "--tokenizer", str(qwen3_dir())]
        with (self.out / "said.txt").open("w") as said:
            return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=said, text=True)

    def _result(self, task: str) -> RolloutResult:
        """One that was settled; when nothing runs any more, whatever there is."""
        over = self._running is None or self._running.stdout is None
        while True:
            known = [result for result in read_results(self.out).values() if result.task == task]
            found = [result for result in known if over or settled(result)]
            if found:
                return found[-1]
            assert not over, (self.out / "said.txt").read_text()
            over = not self._running.stdout.readline()  # type: ignore[union-attr]


def _write_task(folder: Path, cell: Cell) -> None:
    shutil.copytree(TASK, folder, dirs_exist_ok=True)
    instruction = (TASK / "instruction.md").read_text()
    (folder / "instruction.md").write_text(f"{instruction}\n(case {slug(cell)}: {cell[1]})\n")


def holds_secret(content: bytes) -> bool:
    """Whether a long run of hexadecimal digits follows a prefix of ours: what keys and session ids look like."""
    parts = [part for marker in (b"sk-", b'"s-') for part in content.split(marker)[1:]]
    return any(len(part) >= 32 and all(chr(byte) in "0123456789abcdef" for byte in part[:32]) for part in parts)


@dataclass(frozen=True)
class Count:
    """Tokens sampled for conversations that are trained, those that were, in how many rows; replies that were not."""

    sampled: int
    trained: int
    rows: int
    untrained: int

    @property
    def share(self) -> float:
        return self.trained / self.sampled if self.sampled else 0.0


def count(ran: Ran) -> Count:
    """Find every generation of the engine's log in the rows: behind its own prompt, trained in one place at most.

    Each mask and log probability is checked; that of a reply which is not trained is zero everywhere. A turn tells
    which role a generation played, and nothing else.
    """
    assert len(ran.generations) == len(ran.turns), "the engine sampled a reply that is no turn"
    for row in ran.rows:
        assert not any(value for value, mask in zip(row["logprobs"], row["loss_mask"], strict=True) if not mask)
    ones = [list(row["loss_mask"]) for row in ran.rows]
    sampled = trained = untrained = 0
    for generation in ran.generations:
        trains = _spend(ran.rows, ones, generation)
        roles = {turn["role"] for turn in ran.turns if tuple(turn["sampled_ids"]) == generation.sampled}
        assert roles, "the engine sampled a reply that is no turn"
        judged = bool(roles & {"main", "subagent"})
        sampled += len(generation.sampled) if judged else 0
        trained += len(generation.sampled) if trains else 0
        untrained += judged and not trains
    assert not any(map(sum, ones)), "a token is trained that the engine did not sample"
    return Count(sampled, trained, sum(1 in row["loss_mask"] for row in ran.rows), untrained)


def _spend(rows: Iterable[dict[str, Any]], ones: Iterable[list[int]], generation: Asked) -> bool:
    """Whether `generation` is trained: in one row, which holds its prompt in front of it. Takes its ones away."""
    start, end = len(generation.prompt), len(generation.prompt) + len(generation.sampled)
    whole = [*generation.prompt, *generation.sampled]
    for row, left in zip(rows, ones, strict=True):
        if row["input_ids"][:end] == whole and all(left[start:end]) and generation.sampled:
            assert row["logprobs"][start:end] == [synthetic_logprob(token) for token in generation.sampled]
            left[start:end] = [0] * len(generation.sampled)
            return True
    return False
