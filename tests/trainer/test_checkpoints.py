"""Where a run that is resumed goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trl_integration.trainer import go_on_after


@pytest.mark.parametrize(
    ("found", "trained", "expected"),
    [
        (1, {0, 2, 5}, 6),  # groups 1, 3 and 4 had no contrast, or are on their way
        (3, {0, 1, 2}, 3),
        (6, {7, 9}, 10),  # resumed from group 6
        (6, set(), 6),  # resumed, and nothing trained since
        (0, set(), 0),
    ],
)
def test_a_run_goes_on_behind_the_last_group_it_trained(
    tmp_path: Path, found: int, trained: set[int], expected: int
) -> None:
    path = tmp_path / "rollout_state.json"
    path.write_text(json.dumps({"prompt_index": found, "model_version": 4}))
    go_on_after(trained, path)
    assert json.loads(path.read_text()) == {"prompt_index": expected, "model_version": 4}


def test_whoever_reads_a_checkpoint_meanwhile_finds_one_place_or_the_other(tmp_path: Path) -> None:
    path, old = tmp_path / "rollout_state.json", tmp_path / "old.json"
    path.write_text('{"prompt_index": 1}')
    os.link(path, old)
    go_on_after({4}, path)
    assert (old.read_text(), json.loads(path.read_text())["prompt_index"]) == ('{"prompt_index": 1}', 5)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["old.json", "rollout_state.json"]
