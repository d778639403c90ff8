"""What scripts read of a batch is what the batch itself reads back: every rollout once, whatever a crash cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harbor_env.errors import UsageError
from harbor_env.outcome import Reason, RolloutResult
from harbor_env.records import append_result
from scripts.collect_sft import solved
from scripts.evaluate import load


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
