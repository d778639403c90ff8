"""Datasets of Harbor's registry, read by Harbor's own client from a registry of the test's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from harbor_env.errors import TaskError
from harbor_env.server.listening import beside, bind, url_of
from harbor_env.tasks import load_dataset
from tests.test_dataset_git import cache, commit, git  # noqa: F401 - a fixture
from tests.test_tasks import make_task


@pytest.fixture
def registry(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A registry with numbers@1.0 (git, pinned to a commit), numbers@2.0 and local@1 (beside the registry's file)."""
    origin = tmp_path / "origin"
    for name in ("one", "two"):
        make_task(origin / "tasks" / name)
    git(origin, "init", "-q")
    pinned = commit(origin)
    make_task(origin / "tasks" / "three")
    make_task(tmp_path / "registry" / "beside")
    commit(origin)
    tasks = [
        {"name": name, "git_url": f"file://{origin}", "git_commit_id": pinned, "path": f"tasks/{name}"}
        for name in ("one", "two")
    ]
    newer = [{"name": "three", "git_url": f"file://{origin}", "path": "tasks/three"}]
    path = tmp_path / "registry" / "registry.json"
    datasets = [
        dataset("numbers", "1.0", tasks),
        dataset("numbers", "2.0", newer),
        dataset("local", "1", [{"name": "beside", "path": "beside"}]),
        dataset("sly", "1", [{"name": "x", "git_url": "--upload-pack=id", "path": "x"}]),
        dataset("ext", "1", [{"name": "x", "git_url": "ext::sh -c id", "path": "x"}]),
        dataset("ref", "1", [{"name": "x", "git_url": f"file://{origin}", "git_commit_id": "--x=y", "path": "x"}]),
    ]
    path.write_text(json.dumps(datasets))
    monkeypatch.setenv("OPENENV_HARBOR_REGISTRY", str(path))
    return path


def dataset(name: str, version: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "version": version, "description": "", "tasks": tasks}


def test_a_name_and_version_is_a_dataset(registry: Path) -> None:
    found = load_dataset("numbers@1.0")
    assert ([task.name for task in found], found.revision) == (["one", "two"], "numbers@1.0")


def test_a_name_alone_is_its_newest_version(registry: Path) -> None:
    found = load_dataset("registry:numbers")
    assert ([task.name for task in found], found.revision) == (["three"], "numbers@2.0")


def test_a_task_beside_the_registry_s_file_is_found(registry: Path) -> None:
    assert [task.name for task in load_dataset("local@1")] == ["beside"]


def test_a_version_once_fetched_needs_no_registry(registry: Path, tmp_path: Path) -> None:
    before = load_dataset("numbers@1.0")
    registry.unlink()
    (tmp_path / "origin").rename(tmp_path / "gone")
    assert load_dataset("numbers@1.0") == before


@pytest.mark.parametrize("name", ["numbers@9.9", "nothing@1.0", "registry:nothing"])
def test_what_is_not_registered_is_one_sentence(registry: Path, name: str) -> None:
    with pytest.raises(TaskError, match=r"registry .* does not give .* not found"):
        load_dataset(name)


@pytest.mark.parametrize("name", ["sly@1", "ext@1", "ref@1"])
def test_a_registry_cannot_give_git_anything_but_a_place_and_a_commit(registry: Path, name: str) -> None:
    with pytest.raises(TaskError, match=r"no address of a git repository|is no commit"):
        load_dataset(name)


@pytest.mark.parametrize("name", ["registry:../x", "registry:", "registry:a/b/c", "registry:a@b@c"])
def test_a_name_that_would_leave_the_cache_is_refused(registry: Path, name: str) -> None:
    with pytest.raises(TaskError, match="is no name in Harbor's registry"):
        load_dataset(name)


async def test_a_registry_from_elsewhere_is_given_no_folder_of_this_machine(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = make_task(tmp_path / "private" / "mine")
    local = [{"name": "mine", "path": str(private)}]
    body = json.dumps([dataset("absolute", "1", local), dataset("beside", "1", [{"name": "x", "path": "x"}])])
    with bind("127.0.0.1", 0) as bound:
        async with beside(PlainTextResponse(body, media_type="application/json"), bound):
            monkeypatch.setenv("OPENENV_HARBOR_REGISTRY", f"{url_of(bound)}/registry.json")
            for name in ("absolute@1", "beside@1"):
                with pytest.raises(TaskError, match="only a registry in a file here may name folders here"):
                    await asyncio.to_thread(load_dataset, name)
