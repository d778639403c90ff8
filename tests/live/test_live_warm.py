"""mini-swe-agent forked from a process that has imported it samples, records and scores what it does started cold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harbor_env.records import read_results
from harbor_env.rollout import RolloutResult
from tests.sandbox_world import needs_sandbox
from tests.tokenizers import qwen3_dir

ROOT = Path(__file__).resolve().parents[2]
ENGINE = f"scripted:{ROOT}/scripts/bench_warm.py:count"


def rollouts(out: Path, *flags: str) -> list[RolloutResult]:
    command = [sys.executable, "-m", "harbor_env.cli", "rollout", "--engine", ENGINE, "--tokenizer", str(qwen3_dir())]
    flags = ("--task", "l1-count-lines", "--attempts", "3", "--concurrency", "3", "--out", str(out), *flags)
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(read_results(out).values())


def rows(out: Path, results: list[RolloutResult]) -> list[dict[str, Any]]:
    texts = [(out / result.rows).read_text() for result in results]
    return [{key: json.loads(text)[key] for key in ("input_ids", "loss_mask")} for text in texts]


@needs_sandbox
@pytest.mark.live
@pytest.mark.timeout(600)
def test_a_forked_harness_does_what_a_cold_one_does(tmp_path: Path) -> None:
    cold = rollouts(tmp_path / "cold")
    warm = rollouts(tmp_path / "warm", "--warm")
    assert [(result.ok, result.reward, result.flags) for result in warm] == [(True, 1.0, ())] * 3
    assert [result.findings for result in warm] == [result.findings for result in cold]
    assert [result.atif for result in warm] == [result.atif for result in cold]
    assert rows(tmp_path / "warm", warm) == rows(tmp_path / "cold", cold)
