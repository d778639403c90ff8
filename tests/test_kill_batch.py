"""A batch killed where it stands is gone with all its processes, and goes on as if it had only paused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.test_cli import REPOSITORY, command
from tests.tiny_harness import write_task
from tests.tokenizers import qwen3_dir


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_killed_batch_leaves_no_process_and_repeats_nothing_that_was_settled(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_task(tmp_path / "tasks" / name)
    out = tmp_path / "out"
    words = ["rollout", "--dataset", str(tmp_path / "tasks"), "-n", "2", "--harness", "tests.tiny_harness:TINY"]
    words += ["--engine", f"scripted:{REPOSITORY}/tests/tiny_policy.py:one_rollout", "--tokenizer", str(qwen3_dir())]
    words += ["--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "harbor_env.cli", *words],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as batch:
        assert batch.stdout
        assert any("task 1: b ..." in line for line in batch.stdout)
        children = psutil.Process(batch.pid).children(recursive=True)
        batch.kill()
    assert batch.returncode == -signal.SIGKILL
    assert children
    assert psutil.wait_procs(children, timeout=30)[1] == []

    [settled] = lines(out / "results.jsonl")
    with (out / "results.jsonl").open("a") as file:
        file.write('{"name": "0001-b-TINY-0", "ta')
    done = command(*words)
    assert done.returncode == 0, done
    results = lines(out / "results.jsonl")
    assert results[0] == settled
    assert [(result["task"], result["reward"], result["tries"]) for result in results] == [("a", 1.0, 1), ("b", 1.0, 1)]
    assert [row["rollout"] for row in lines(out / "rows.jsonl")] == ["0000-a-TINY-0", "0001-b-TINY-0"]
    exported = command("export", "--data", str(out), "--out", str(tmp_path / "rows.jsonl"))
    assert "2 sessions as rows" in exported.stdout
    sessions = {row["session_id"]: row["metadata"]["reward"] for row in lines(tmp_path / "rows.jsonl")}
    assert sessions == {result["session"]: result["reward"] for result in results}
