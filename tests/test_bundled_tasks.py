"""The tasks that ship: written by the generator, solvable, failing untouched, and held-out ones really held out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from harbor_env.tasks import BUNDLED, Task, load_dataset
from tests.task_scripts import make_tasks, reward_in_a_folder

TASKS = load_dataset(split="all")


def contents(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Every file below `folder`: its bytes, and whether it is executable."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), bool(path.stat().st_mode & 0o100)) for path in files}


def data_files(split: str) -> set[bytes]:
    return {path.read_bytes() for path in (BUNDLED / split).rglob("environment/data/**/*") if path.is_file()}


def test_there_are_tasks_of_three_levels_in_both_splits() -> None:
    counts = Counter((task.split, task.level) for task in TASKS)
    assert counts == {
        **{("train", 1): 12, ("train", 2): 11, ("train", 3): 9},
        **{("heldout", 1): 6, ("heldout", 2): 6, ("heldout", 3): 6},
    }


def test_the_generator_writes_the_bundled_tasks_byte_for_byte(tmp_path: Path) -> None:
    make_tasks.write_bundled(tmp_path)
    assert contents(tmp_path) == contents(BUNDLED)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_passes_with_its_solution_and_fails_untouched(task: Task, tmp_path: Path) -> None:
    assert reward_in_a_folder(task.path, tmp_path / "solved", solved=True) == 1.0
    assert reward_in_a_folder(task.path, tmp_path / "untouched", solved=False) == 0.0


def test_held_out_tasks_share_no_data_file_and_no_question_with_training_ones() -> None:
    train, heldout = data_files("train"), data_files("heldout")
    assert len(train) > 24
    assert len(heldout) > 12
    assert not train & heldout
    questions = {
        split: {line for task in TASKS if task.split == split for line in task.instruction.splitlines() if line}
        for split in ("train", "heldout")
    }
    assert not questions["train"] & questions["heldout"]


def test_no_two_tasks_have_one_name_or_one_instruction() -> None:
    assert len({task.name for task in TASKS}) == len({task.instruction for task in TASKS}) == len(TASKS)


def test_no_file_an_agent_sees_holds_the_grader() -> None:
    for task in TASKS:
        seen = {path.name for path in (task.path / "environment").rglob("*")}
        assert not seen & {"expected.json", "grade.py", "test.sh", "solve.sh"}


def test_the_eight_step_trail_takes_eight_commands_in_both_splits() -> None:
    for split in ("train", "heldout"):
        task = load_dataset(split=split).find("l3-eight-step-trail")
        commands = (task.path / "solution" / "solve.sh").read_text().strip().split("\n\n")[1:]
        assert len(commands) == task.metadata["steps"] == 8


def test_harbor_itself_reads_every_bundled_task() -> None:
    harbor = pytest.importorskip("harbor.models.task.task")
    for task in TASKS:
        read = harbor.Task(task.path)
        assert read.instruction == task.instruction
        assert read.config.schema_version == "1.4"
        assert harbor.Task.is_valid_dir(task.path)


@pytest.mark.parametrize("family", sorted({*make_tasks.FAMILIES} - {task.metadata["family"] for task in TASKS}))
def test_a_fresh_task_of_a_family_that_is_not_bundled_is_solvable_and_fails_untouched(
    family: str, tmp_path: Path
) -> None:
    make_tasks.main(
        ["--count", "1", "--seed", "5", "--families", family, "--split", "heldout", "--out", str(tmp_path / "t")]
    )
    (task,) = load_dataset(tmp_path / "t")
    assert reward_in_a_folder(task.path, tmp_path / "solved", solved=True) == 1.0
    assert reward_in_a_folder(task.path, tmp_path / "untouched", solved=False) == 0.0


def test_a_seed_gives_the_same_fresh_tasks_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        make_tasks.main(["--count", "45", "--seed", seed, "--out", str(tmp_path / name)])
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    data = {name: {text for path, (text, _) in contents(tmp_path / name).items() if "/data/" in path} for name in "ac"}
    assert not data["a"] & data["c"]


def test_hundreds_of_fresh_tasks_are_balanced_and_never_repeat() -> None:
    names = [name for name in make_tasks.FAMILIES for _ in range(10)]
    drawn = list(make_tasks.fresh_tasks(names, "train", 3))
    assert len(drawn) >= 400
    assert set(Counter(task.family.name for task in drawn).values()) == {10}
    assert len({task.name for task in drawn}) == len(drawn)
    data = [text for task in drawn for text in set(task.draft.files.values())]
    bundled = {text.decode() for text in data_files("train") | data_files("heldout")}
    assert len(data) == len(set(data))
    assert not bundled & set(data)


def test_phrasings_vary_within_a_family() -> None:
    names = ["count-lines"] * 40
    openings = {
        split: {task.draft.question.partition("/app/")[0] for task in make_tasks.fresh_tasks(names, split, 0)}
        for split in ("train", "heldout")
    }
    assert len(openings["train"]) == 3
    assert len(openings["heldout"]) == 1
    assert not openings["train"] & openings["heldout"]


def test_answers_of_a_family_are_not_all_one_value() -> None:
    drawn = make_tasks.fresh_tasks([name for name in make_tasks.FAMILIES for _ in range(6)], "train", 11)
    answers: dict[str, set[str]] = {}
    for task in drawn:
        answers.setdefault(task.family.name, set()).add(json.dumps(task.draft.checks))
    assert min(len(values) for values in answers.values()) >= 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--count", "3"], "needs --out DIR"),
        (["--count", "3", "--out", "."], "a folder that is new or empty"),
        (["--count", "3", "--out", "new", "--families", "nope"], "no family nope; there are: .*count-lines"),
    ],
)
def test_a_wrong_request_to_the_generator_says_what_is_right(arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        make_tasks.main(arguments)
