"""One run writes to a folder, none over another's results, and one that goes on does so from what is whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harbor_env.errors import UsageError
from trl_integration.config import build, identity
from trl_integration.line_files import append_lines, read_lines
from trl_integration.output_folder import begin, checkpoints, held, keep_settings, refuse_other_settings


def saved(output: Path, step: int, **changed: str | None) -> Path:
    """A checkpoint; `changed` are its files' contents, None for none."""
    folder = output / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    for name, text in {"trainer_state.json": '{"a": 1}', "rollout_state.json": '{"a": 1}', **changed}.items():
        if text is not None:
            (folder / name).write_text(text)
    return folder


def test_a_run_goes_on_from_the_last_checkpoint_that_is_whole(tmp_path: Path) -> None:
    whole = [saved(tmp_path, step) for step in (9, 20)]
    saved(tmp_path, 40, **{"trainer_state.json": None})
    saved(tmp_path, 60, **{"trainer_state.json": '{"a": '})
    saved(tmp_path, 80, **{"rollout_state.json": None})
    saved(tmp_path, 90, **{"checkpoint-is-incomplete.txt": ""})
    (tmp_path / "checkpoint-best").mkdir()
    assert checkpoints(tmp_path) == whole
    assert begin(tmp_path, resume=True) == str(whole[-1])


def test_nothing_is_begun_over_checkpoints_or_gone_on_with_without(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no whole checkpoint to go on from"):
        begin(tmp_path, resume=True)
    saved(tmp_path, 1)
    with pytest.raises(UsageError, match="give --resume to go on, or another output_dir"):
        begin(tmp_path, resume=False)


def test_what_a_run_without_checkpoints_left_is_put_aside(tmp_path: Path) -> None:
    for count in (1, 2):
        append_lines(tmp_path / "log.jsonl", [{"step": count}])
        append_lines(tmp_path / "rollouts.jsonl", [{"group": count}])
        assert begin(tmp_path, resume=False) is None
    left = {path.name: list(read_lines(path)) for path in tmp_path.iterdir()}
    assert left == {
        "log.jsonl.1": [{"step": 1}],
        "log.jsonl.2": [{"step": 2}],
        "rollouts.jsonl.1": [{"group": 1}],
        "rollouts.jsonl.2": [{"group": 2}],
    }


def test_steps_and_groups_that_are_made_again_are_told_once_and_none_is_lost(tmp_path: Path) -> None:
    saved(tmp_path, 2, **{"rollout_state.json": '{"prompt_index": 5}'})
    log, rollouts = tmp_path / "log.jsonl", tmp_path / "rollouts.jsonl"
    begin(tmp_path, resume=True)
    append_lines(log, [{"step": step} for step in (1, 2, 2, 3)])
    append_lines(rollouts, [{"group": group} for group in (0, 1, 6, 3, 5, 4)])
    with log.open("a") as file:
        file.write('{"step": 4, "lo')
    begin(tmp_path, resume=True)
    append_lines(log, [{"step": 3}])
    append_lines(rollouts, [{"group": 5}])
    assert log.read_text() == "".join(f'{{"step": {step}}}\n' for step in (1, 2, 2, 3))
    assert [line["group"] for line in read_lines(rollouts)] == [0, 1, 3, 4, 5]
    assert (tmp_path / "log.jsonl.1").read_text() == '{"step": 3}\n{"step": 4, "lo\n'
    assert [line["group"] for line in read_lines(tmp_path / "rollouts.jsonl.1")] == [6, 5]


def test_a_folder_is_one_run_s_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path / "new"), pytest.raises(UsageError, match="Another training run writes to"):
        held(tmp_path / "new")
    held(tmp_path / "new").close()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"output_dir: .*file"):
        held(tmp_path / "file")


def test_a_line_cut_short_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "new/lines.jsonl"
    append_lines(path, [{"a": 1}, {"a": 2}])
    with path.open("a") as file:
        file.write('{"a": 3, "b')
    append_lines(path, [{"a": 4}])
    assert [line["a"] for line in read_lines(path)] == [1, 2, 4]


def go_on(folder: Path, settings: Mapping[str, Any]) -> None:
    refuse_other_settings(folder, settings)
    keep_settings(folder, settings)


def test_a_run_goes_on_with_the_settings_it_began_with(tmp_path: Path) -> None:
    began = {"model": "m", "harnesses": ("a", "b"), "lora": None}
    keep_settings(tmp_path, began)
    go_on(tmp_path, began)
    with pytest.raises(UsageError, match=r"harnesses \['a', 'b'\], now \['b'\].*lora None, now"):
        go_on(tmp_path, {**began, "harnesses": ("b",), "lora": {"r": 4}})
    go_on(tmp_path, began)
    keep_settings(tmp_path, {**began, "model": "other"})


def test_stages_of_harnesses_are_written_down(tmp_path: Path) -> None:
    given = {
        "model": "m",
        "servers": "http://a",
        "output_dir": "o",
        "lora": {"r": 4},
        "training": {"num_generations": 4},
    }
    stages = [{"harnesses": ["a"], "groups": 3}, {"harnesses": {"a": 1, "b": 2}}]
    config = build({**given, "harnesses": stages})
    keep_settings(tmp_path, identity(config))
    go_on(tmp_path, identity(config))
    other = build({**given, "harnesses": [{**stages[0], "groups": 4}, stages[1]]})
    with pytest.raises(UsageError, match="harnesses"):
        go_on(tmp_path, identity(other))


def test_a_run_begun_without_settings_written_down_goes_on(tmp_path: Path) -> None:
    go_on(tmp_path, {"model": "m"})
    with pytest.raises(UsageError, match="model 'm', now 'n'"):
        go_on(tmp_path, {"model": "n"})
