"""Kills of a serving system are judged strictly: neither a silent end nor anything left passes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.kills.machine import PARTS
from scripts.kills.tally import Kills, table
from tests.tokenizers import qwen3_dir

ROOT = Path(__file__).resolve().parent.parent


def test_a_score_and_a_failure_with_a_reason_are_counted_by_kind() -> None:
    kills = Kills("worker", count=1)
    kills.take({"ok": True, "reward": 0.0})
    kills.take({"ok": False, "reward": None, "kind": "sandbox", "sentence": "it died"})
    assert (dict(kills.outcomes), kills.faults) == ({"scored": 1, "sandbox": 1}, [])
    assert "worker  1      2         sandbox 1, scored 1" in table([kills])


@pytest.mark.parametrize(
    "end",
    [
        {"ok": False, "reward": 0.0, "kind": "sandbox", "sentence": "it died"},
        {"ok": False, "reward": None, "kind": "sandbox", "sentence": ""},
        {"ok": True, "reward": None},
        {"kind": "raised", "sentence": "RuntimeError"},
    ],
)
def test_an_end_that_is_neither_is_a_fault(end: dict[str, Any]) -> None:
    kills = Kills("worker")
    kills.take(end)
    assert len(kills.faults) == 1


@pytest.mark.live
@pytest.mark.timeout(900)
def test_whatever_part_is_killed_every_rollout_ends_and_nothing_is_left() -> None:
    flags = ["--tokenizer", str(qwen3_dir()), "--kills", str(len(PARTS)), "--seed", str(random.randrange(100))]
    program = [sys.executable, "scripts/kill_rollouts.py", *flags]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{flags}: {done.stdout + done.stderr[-2000:]}"
