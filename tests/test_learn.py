"""The experiment's script over programs that do nothing: what it starts, and what it refuses to."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READY = ("base/tokenizer.json", "tasks/.done", "sft.jsonl", "sft/tokenizer.json")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder in which everything up to the first evaluation is done, and a space in its name."""
    folder = tmp_path / "an experiment"
    for name in READY:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def learn(out: Path, python: str, *words: str) -> tuple[int, str, list[list[str]]]:
    """Its status, what it printed, and the arguments of each call of Python, which does what `python` says."""
    binaries, calls = out.parent / "engine/bin", out.parent / "calls"
    binaries.mkdir(parents=True, exist_ok=True)
    script = f'#!/bin/bash\n(IFS=$\'\\t\'; echo "$*" >>"{calls}")\n{python}\n'
    for name in ("python", "openenv-harbor"):
        (binaries / name).write_text(script)
        (binaries / name).chmod(0o755)
    given = {"OUT": str(out), "ENGINE": str(binaries.parent), "BIN": str(binaries), "START_SECONDS": "0"}
    done = subprocess.run(
        ["bash", "scripts/learn.sh", *words],
        cwd=ROOT,
        env={**os.environ, **given},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return (
        done.returncode,
        done.stdout,
        [line.split("\t") for line in calls.read_text().splitlines() if line] if calls.exists() else [],
    )


def test_what_answers_at_its_ports_already_is_not_taken_for_its_own(out: Path) -> None:
    status, printed, calls = learn(out, "exit 0")
    assert (status, "something answers at port 8000" in printed) == (1, True), printed
    assert [call[0] for call in calls] == ["-c"]


def test_a_folder_is_one_run_s_at_a_time(out: Path) -> None:
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, printed, calls = learn(out, "exit 1")
    assert (status, "another run writes to" in printed, calls) == (1, True, [])


def test_tasks_that_were_made_in_part_are_not_taken_for_all(out: Path) -> None:
    (out / "tasks/.done").unlink()
    status, _, _ = learn(out, 'for word; do :; done; mkdir -p "$word/l1-count-lines"; exit 1')
    assert status
    assert list((out / "tasks").iterdir()) == []


def test_what_it_compares_may_have_a_space_in_its_name(out: Path) -> None:
    (out / "multi/checkpoint-20").mkdir(parents=True)
    (out / "multi/checkpoint-20/trainer_state.json").touch()
    status, printed, calls = learn(out, "exit 0", "report")
    assert status == 0, printed
    given = [[word for word in call[1:] if word.startswith(str(out))] for call in calls]
    first, second, third, *times, plot = given
    assert first == [f"{out}/test/{name}" for name in ("sft", "multi", "single")]
    assert second == [f"{out}/test/multi-40", f"{out}/test/single"]
    assert third == [f"{out}/dev/{name}" for name in ("sft", "base", "multi-20")]
    assert times == [[f"{out}/multi"], [f"{out}/single"]]
    assert plot == [f"{out}/multi/log.jsonl", f"{out}/single/log.jsonl", f"{out}/learning.png"]


def test_a_run_that_was_found_wrong_is_not_passed_over_the_next_time(out: Path) -> None:
    for name in ("dev/sft/.done", "test/sft/.done", "multi/checkpoint-60/trainer_state.json"):
        (out / name).parent.mkdir(parents=True)
        (out / name).touch()
    for _ in range(2):
        status, printed, calls = learn(out, 'case "$1" in *check_training*) exit 1 ;; esac')
        assert status == 1, printed
        assert calls[-1][0] == "scripts/check_training.py"
    assert not any("train.py" in word for call in calls for word in call[:1] if "check" not in word)


def test_a_word_it_does_not_know_is_refused(out: Path) -> None:
    status, printed, _ = learn(out, "exit 0", "ls")
    assert (status, "there is no ls" in printed) == (2, True), printed
