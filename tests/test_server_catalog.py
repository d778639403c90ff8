"""The tasks a server offers are those of its datasets, whatever a client asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harbor_env.errors import TaskError
from harbor_env.server.catalog import Catalog, split_type
from harbor_env.tasks import load_dataset
from tests.tiny_harness import write_task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train/a", "train/b", "test/c"):
        write_task(tmp_path / "numbers" / name)
    write_task(tmp_path / "outside")
    return tmp_path / "numbers"


def test_the_bundled_dataset_has_its_training_and_held_out_splits() -> None:
    splits = Catalog().splits
    assert [(name, len(tasks)) for name, tasks in splits.items()] == [("train", 32), ("heldout", 18), ("all", 50)]


def test_a_folder_s_first_level_are_its_splits(folder: Path) -> None:
    catalog = Catalog([str(folder)])
    assert {name: len(tasks) for name, tasks in catalog.splits.items()} == {"train": 2, "test": 1, "all": 3}
    assert catalog.default == "train"


def test_several_datasets_keep_their_splits_apart(folder: Path) -> None:
    assert list(Catalog(["bundled", str(folder)]).splits)[-3:] == ["numbers/train", "numbers/test", "numbers/all"]


def test_consecutive_seeds_visit_every_task(folder: Path) -> None:
    catalog = Catalog([str(folder)])
    assert {catalog.choose("train", seed=seed).task.name for seed in (6, 7)} == {"a", "b"}
    assert catalog.choose("train", seed=7) == catalog.choose("train", seed=7)


def test_a_task_is_chosen_by_name_or_index(folder: Path) -> None:
    catalog = Catalog([str(folder)])
    assert catalog.choose("train", "b").index == 1
    assert catalog.choose("train", 1).task.name == "b"


@pytest.mark.parametrize("split", ["..", "../outside", "/etc", "train/../..", "nowhere"])
def test_a_split_that_is_not_there_is_refused_with_those_that_are(folder: Path, split: str) -> None:
    with pytest.raises(TaskError, match="there is: train, test, all"):
        Catalog([str(folder)]).choose(split)


@pytest.mark.parametrize("task", ["../../outside", "/etc", 2, -1])
def test_a_task_outside_the_dataset_cannot_be_chosen(folder: Path, task: str | int) -> None:
    with pytest.raises(TaskError):
        Catalog([str(folder)]).choose("train", task)


def test_splits_are_told_as_openenv_types_them() -> None:
    assert [split_type(name) for name in ("a/train", "heldout", "dev", "all")] == [
        "train",
        "test",
        "validation",
        "validation",
    ]


@pytest.mark.parametrize("spec", ["bundled", "numbers"])
def test_one_look_finds_the_splits_and_tasks_that_loading_each_split_would(folder: Path, spec: str) -> None:
    spec = str(folder) if spec == "numbers" else spec
    for name, dataset in Catalog([spec]).splits.items():
        assert dataset == load_dataset(spec, split=name)


def test_a_split_that_tasks_declare_is_one_of_the_catalog_s(folder: Path) -> None:
    toml = folder / "train" / "b" / "task.toml"
    toml.write_text(f'{toml.read_text()}\n[metadata]\nsplit = "dev"\n')
    splits = Catalog([str(folder)]).splits
    assert {name: [task.name for task in tasks] for name, tasks in splits.items()} == {
        "train": ["a", "b"],
        "dev": ["train/b"],
        "test": ["c"],
        "all": ["test/c", "train/a", "train/b"],
    }


@pytest.mark.parametrize("task", [{"a": 1}, ["a"], 1.5, True])
def test_a_task_that_is_neither_a_name_nor_a_number_is_refused_and_said(folder: Path, task: Any) -> None:
    with pytest.raises(TaskError, match="task: expected a name or an index, not"):
        Catalog([str(folder)]).choose("train", task)


@pytest.mark.parametrize("seed", ["x", 1.5, [1], True])
def test_a_seed_that_is_no_whole_number_is_refused_and_said(folder: Path, seed: Any) -> None:
    with pytest.raises(TaskError, match="seed: expected a whole number, not"):
        Catalog([str(folder)]).choose("train", seed=seed)
