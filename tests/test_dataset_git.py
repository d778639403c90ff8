"""Datasets in git repositories: pinned to a commit, fetched once, and never more than a place and a ref to git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harbor_env.errors import TaskError
from harbor_env.git_source import Repository, parse_repository
from harbor_env.tasks import load_dataset
from tests.test_tasks import make_task

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder: Path, *words: str) -> str:
    who = (
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "protocol.file.allow=always",
    )
    return subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "c")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENENV_HARBOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def origin(tmp_path: Path, cache: Path) -> Path:
    """A repository with tasks tasks/a (tagged v1, two commits ago), b and, at its head, c."""
    folder = tmp_path / "origin"
    make_task(folder / "tasks" / "a")
    git(folder, "init", "-q")
    commit(folder)
    git(folder, "tag", "-am", "first", "v1")
    git(folder, "branch", "feature/x")
    make_task(folder / "tasks" / "b")
    commit(folder)
    make_task(folder / "extra" / "c")
    commit(folder)
    return folder


def names(spec: str) -> list[str]:
    return [task.name for task in load_dataset(spec)]


def test_a_repository_is_a_dataset_pinned_to_its_commit(origin: Path) -> None:
    dataset = load_dataset(f"file://{origin}")
    assert [task.name for task in dataset] == ["extra/c", "tasks/a", "tasks/b"]
    assert dataset.revision == git(origin, "rev-parse", "HEAD")
    assert not (dataset[0].path / "../../.git").exists()


def test_a_ref_is_a_branch_a_tag_or_a_commit_and_a_folder_follows_a_hash(origin: Path) -> None:
    second = git(origin, "rev-parse", "HEAD~1")
    assert names(f"file://{origin}@v1") == names(f"file://{origin}@feature/x") == ["tasks/a"]
    assert names(f"file://{origin}@{second}") == ["tasks/a", "tasks/b"]
    assert names(f"file://{origin}@{second}#tasks") == ["a", "b"]
    assert names(f"file://{origin}/tree/main/extra") == ["c"]
    assert load_dataset(f"file://{origin}@v1").revision == git(origin, "rev-parse", "v1^{commit}")


def test_a_branch_moves_with_its_repository(origin: Path) -> None:
    before = load_dataset(f"file://{origin}@main")
    make_task(origin / "extra" / "d")
    after = commit(origin)
    assert load_dataset(f"file://{origin}@main").revision == after != before.revision
    assert before[0].instruction == "Do c.\n"


def test_what_was_fetched_is_used_again_when_the_repository_is_out_of_reach(
    origin: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec, second = f"file://{origin}", git(origin, "rev-parse", "HEAD~1")
    fetched, pinned = load_dataset(spec), load_dataset(f"{spec}@{second}")
    origin.rename(origin.with_name("gone"))
    assert load_dataset(spec) == fetched
    assert f"does not answer; using commit {fetched.revision}" in caplog.text
    assert load_dataset(f"{spec}@{second}") == pinned
    with pytest.raises(TaskError, match=r"cannot be fetched: fatal: .*does not (exist|appear).*Check the address"):
        load_dataset(f"{spec}@v1")


def test_an_unknown_ref_says_which_there_are(origin: Path) -> None:
    with pytest.raises(
        TaskError, match="has no 'v9': give a branch, a tag or a full commit; there is: feature/x, main"
    ):
        load_dataset(f"file://{origin}@v9")
    with pytest.raises(TaskError, match="cannot be fetched"):
        load_dataset(f"file://{origin}@{COMMIT}")
    with pytest.raises(TaskError, match="has no folder 'nope' at commit"):
        load_dataset(f"file://{origin}#nope")


def test_a_link_out_of_the_repository_is_refused(origin: Path) -> None:
    (origin / "tasks" / "a" / "environment" / "passwd").symlink_to("/etc/passwd")
    (origin / "leak").symlink_to("/etc")
    commit(origin)
    with pytest.raises(TaskError, match=r"tasks/a: environment/passwd is a link that leaves the dataset"):
        load_dataset(f"file://{origin}")
    with pytest.raises(TaskError, match="has no folder 'leak'"):
        load_dataset(f"file://{origin}#leak")


def test_a_fetch_that_fails_leaves_nothing_half_done(origin: Path, cache: Path) -> None:
    with pytest.raises(TaskError):
        load_dataset(f"file://{origin}@{COMMIT}")
    (home,) = (cache / "datasets" / "git").iterdir()
    assert [path.name for path in home.iterdir()] == ["lock"]


def test_without_git_the_way_out_is_named(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TaskError, match=r"git is not installed, so .* cannot be fetched: install it, or give a folder"):
        load_dataset(f"file://{origin}")


def test_a_password_in_a_url_is_in_no_message(cache: Path) -> None:
    with pytest.raises(TaskError) as caught:
        load_dataset("http://user:secret-word@127.0.0.1:9/org/name")
    assert "http://127.0.0.1:9/org/name cannot be fetched" in str(caught.value)
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("org/name", Repository("https://github.com/org/name")),
        ("org/name@feature/x", Repository("https://github.com/org/name", "feature/x")),
        ("hf:org/name@v1#tasks", Repository("https://huggingface.co/datasets/org/name", "v1", "tasks")),
        ("https://huggingface.co/datasets/a/b@v1", Repository("https://huggingface.co/datasets/a/b", "v1")),
        ("https://github.com/a/b/tree/main/c/d", Repository("https://github.com/a/b", "main", "c/d")),
        ("git@host.org:a/b.git@v1", Repository("git@host.org:a/b.git", "v1")),
        ("ssh://git@host/a/b.git@v1", Repository("ssh://git@host/a/b.git", "v1")),
    ],
)
def test_a_spec_is_a_url_a_ref_and_a_folder(spec: str, expected: Repository) -> None:
    assert parse_repository(spec) == expected


@pytest.mark.parametrize(
    "spec",
    [
        "org/name@--upload-pack=touch /tmp/x",
        "org/name@-x",
        "org/name@a..b",
        "org/name@a b",
        "org/name#../../etc",
        "org/name#/etc",
        "ext://sh -c touch%20x",
        "ext::sh -c id",
        "https://-oProxyCommand=id/x/y",
        "https:///x/y",
        "https://host/a b",
        "https://host/a\n--upload-pack=x",
        "ssh://-oProxyCommand=id/x",
        "hf:--upload-pack=x/y",
        "hf:org",
        "git@-oProxyCommand=id:x/y",
        "git@host:--upload-pack=x",
    ],
)
def test_a_spec_that_would_be_more_than_a_place_and_a_ref_is_refused(spec: str, cache: Path) -> None:
    with pytest.raises(TaskError):
        load_dataset(spec)
    assert not cache.exists() or not list(cache.rglob("refs.json"))


def test_a_users_git_variables_do_not_lead_elsewhere(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(origin / "nowhere"))
    monkeypatch.setenv("GIT_WORK_TREE", os.sep)
    assert names(f"file://{origin}@v1") == ["tasks/a"]
