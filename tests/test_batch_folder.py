"""One folder, one batch: results made with other settings never come together unless somebody said so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harbor_env.batch_folder import agree, claimed
from harbor_env.errors import UsageError
from harbor_env.records import RESULTS

THEN = {"model": "small", "temperature": 1.0, "harness": ["a", "b"], "seed": "", "level": "tokens"}


@pytest.fixture
def used(tmp_path: Path) -> Path:
    agree(tmp_path, THEN)
    (tmp_path / RESULTS).touch()
    return tmp_path


def written(out: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((out / "batch.json").read_text())
    return document


def test_the_same_settings_go_on(used: Path) -> None:
    agree(used, THEN)
    assert written(used) == {"settings": THEN, "earlier": []}


@pytest.mark.parametrize(
    ("now", "line"),
    [
        ({"model": "large"}, "--model: small then, large now"),
        ({"temperature": 0.5}, "--temperature: 1.0 then, 0.5 now"),
        ({"harness": ["a"]}, "--harness: a,b then, a now"),
        ({"seed": 0}, "--seed: none then, 0 now"),
    ],
)
def test_each_other_setting_is_named_and_refused(used: Path, now: dict[str, object], line: str) -> None:
    with pytest.raises(UsageError, match="--resume-anyway") as refused:
        agree(used, {**THEN, **now})
    assert [said.strip() for said in str(refused.value).splitlines()[1:-1]] == [line]
    assert written(used)["settings"] == THEN


def test_what_is_not_known_yet_differs_from_nothing_and_forgets_nothing(used: Path) -> None:
    agree(used, {**THEN, "model": None, "level": None})
    assert written(used)["settings"] == THEN


def test_whoever_resumes_anyway_finds_both_settings_written_down(used: Path) -> None:
    now = {**THEN, "model": "large"}
    agree(used, now, anyway=True)
    assert written(used) == {"settings": now, "earlier": [THEN]}


def test_a_folder_without_results_takes_other_settings(tmp_path: Path) -> None:
    agree(tmp_path, THEN)
    agree(tmp_path, {**THEN, "model": "large"})
    assert written(tmp_path)["earlier"] == []


def test_a_second_batch_is_kept_out_of_the_folder_while_the_first_runs(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(UsageError, match="Another batch is running"), claimed(tmp_path):
        pass
    with claimed(tmp_path):
        pass
