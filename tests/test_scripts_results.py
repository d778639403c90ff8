"""What scripts read of a batch is what the batch itself reads back: every rollout once, whatever a crash cut short."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harbor_env.errors import UsageError
from harbor_env.outcome import Reason, RolloutResult
from harbor_env.records import append_result
from scripts.collect_sft import main as collect
from scripts.collect_sft import solved
from scripts.evaluate import load, run_all, show, table
from tests.waiting import until


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    """A batch of one harness with a rollout that failed before it passed, and one whose line a crash cut short."""
    folder = tmp_path / "pi"
    gone = RolloutResult("one-1", "one", "pi", "local", ok=False, reward=None, reason=Reason("sandbox", "gone"))
    append_result(folder, gone)
    append_result(folder, RolloutResult("one-1", "one", "pi", "local", ok=True, reward=1.0, rows="one-1.jsonl"))
    (folder / "one-1.jsonl").write_text(json.dumps({"trained_tokens": 2, "input_ids": [1, 2]}) + "\n")
    with (folder / "results.jsonl").open("a") as file:
        file.write('{"name": "two-1", "task": "tw')
    return folder


def test_an_evaluation_counts_every_rollout_once_and_no_line_that_was_cut_short(batch: Path) -> None:
    samples = load(batch.parent)
    assert [(sample.task, sample.reward) for sample in samples["pi"]] == [("one", 1.0)]


def test_where_no_evaluation_is_nothing_is_compared(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no evaluation in"):
        load(tmp_path)


def test_examples_are_taken_from_what_rollouts_came_to_in_the_end(batch: Path) -> None:
    assert [(result.name, row["input_ids"]) for result, row in solved(batch)] == [("one-1", [1, 2])]


def evaluation(folder: Path, harness: str, *rewards: float | None) -> Path:
    """An evaluation's folder with one more harness, a task per reward."""
    gone = Reason("sandbox", "gone")
    for number, reward in enumerate(rewards):
        result = RolloutResult(
            *(f"{number:04d}-task-{harness}-0", "task", harness, "local"),
            ok=reward is not None,
            reward=reward,
            reason=None if reward is not None else gone,
            counts={"tool_calls": 3, "sampled_tokens": 20},
        )
        append_result(folder / harness, result)
    return folder


def test_a_harness_in_which_nothing_scored_is_shown_as_such_and_the_others_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = evaluation(evaluation(tmp_path / "sft", "pi", 0.0, 1.0), "codex", None, None)
    after = evaluation(evaluation(tmp_path / "rl", "pi", 1.0, 1.0), "codex", 1.0, None)
    entries = table([before, after])
    assert [(entry["pass_at_1"] or {}).get("mean") for entry in entries] == [None, 0.5, 1.0, 1.0]
    assert [entry["unscorable"] for entry in entries] == [2, 0, 1, 0]
    assert [entry.get("change", "first") is None for entry in entries] == [False, False, True, False]
    show(entries)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=2)[2] == "nothing was scored, 2 unscorable"
    assert "codex                1.000 [1.000, 1.000]  1 tasks, 1 unscorable" in lines[2]
    assert lines[3] == "    change from sft: no task of this harness was scored both times"
    assert lines[5].startswith("    change from sft: +0.500 [")
    assert lines[5].endswith("over 2 tasks; on 1 tasks both passed: tool calls 3.00 -> 3.00, tokens 20.00 -> 20.00")


def test_each_task_is_told_before_and_after_where_cells_are_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = evaluation(tmp_path / "sft", "pi", 0.0, 0.0), evaluation(tmp_path / "rl", "pi", 1.0, None)
    assert "cells" not in table([before, after])[1]["change"]
    entries = table([before, after], cells=True)
    assert entries[1]["change"]["cells"] == {"0000-task": (0.0, 1.0)}
    assert "NaN" not in json.dumps(entries), "no task passed both times, and JSON has no such number"
    show(entries)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["0000-task", "0.00", "->", "1.00"]


def test_tool_calls_are_those_the_harness_counted_where_it_left_a_trajectory(tmp_path: Path) -> None:
    evaluation(tmp_path, "pi", 1.0, 1.0)
    agent = tmp_path / "pi/logs/0001-task-pi-0/agent"
    agent.mkdir(parents=True)
    (agent / "trajectory.json").write_text(json.dumps({"steps": [{"source": "agent", "message": "Done."}]}))
    assert [sample.tool_calls for sample in load(tmp_path)["pi"]] == [3, 0]


@pytest.mark.parametrize(
    ("statuses", "ran", "worst"),
    [([0, 0], 2, 0), ([3, 0], 2, 3), ([0, 3, 0], 3, 3), ([1, 3], 2, 1), ([2, 1, 0], 3, 2), ([3, 130, 0], 2, 130)],
)
def test_every_harness_is_run_whatever_became_of_the_one_before_and_the_worst_is_told(
    tmp_path: Path, statuses: list[int], ran: int, worst: int
) -> None:
    left = tmp_path / "ran"
    script = f"import sys; open({str(left)!r}, 'a').write('x'); sys.exit(int(sys.argv[1]))"
    assert run_all([sys.executable, "-S", "-c", script, str(status)] for status in statuses) == worst
    assert left.read_text() == "x" * ran


CAREFUL = """
import signal, sys, time
def end(*_):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(0.5)
    open(sys.argv[1], "a").write("ended ")
    sys.exit(130)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1], "a").write("began ")
time.sleep(60)
"""
"""A batch that needs a moment to end in its order."""


@pytest.mark.parametrize("to_all", [True, False])
def test_a_batch_ends_in_its_own_order_when_its_evaluation_is_ended(tmp_path: Path, to_all: bool) -> None:
    left = tmp_path / "left"
    batch = [sys.executable, "-S", "-c", CAREFUL, str(left)]
    script = f"import sys; from scripts.evaluate import run_all; sys.exit(run_all([{batch!r}] * 2))"
    evaluation = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        asyncio.run(until(lambda: left.exists() and left.read_text() == "began "))
        if to_all:
            os.killpg(evaluation.pid, signal.SIGINT)
        else:
            evaluation.terminate()
        assert evaluation.wait(20) == 130
        assert left.read_text() == "began ended "
    finally:
        evaluation.kill()


@pytest.mark.parametrize(("reward", "said"), [(0.0, "no rollout was solved"), (None, "is no batch of rollouts")])
def test_examples_collected_before_are_kept_where_there_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reward: float | None, said: str
) -> None:
    out = tmp_path / "sft.jsonl"
    out.write_text("before")
    if reward is not None:
        append_result(tmp_path / "batch", RolloutResult("one-1", "one", "pi", "local", ok=True, reward=reward))
    monkeypatch.setattr(sys, "argv", ["collect_sft.py", str(tmp_path / "batch"), "--out", str(out)])
    with pytest.raises(SystemExit, match=said):
        collect()
    assert out.read_text() == "before"
