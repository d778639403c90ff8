"""What `info` tells: what there is, what is wrong with the rest, and all of it quickly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harbor_env.cli.info import _text
from harbor_env.survey import datasets
from tests.tiny_harness import write_task

SECRET = '\n[verifier.env]\nTOKEN = "${GRADER_TOKEN}"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train/a", "train/b"):
        write_task(tmp_path / "numbers" / name)
    return tmp_path / "numbers"


def test_a_dataset_that_cannot_be_used_is_told_beside_those_that_can(folder: Path) -> None:
    (folder / "empty").mkdir()
    found = datasets([str(folder), str(folder / "empty")], {})
    assert found["splits"] == {"train": 2, "all": 2}
    assert "not a Harbor task" in found["problems"][str(folder / "empty")]
    assert datasets([str(folder / "empty")], {})["splits"] == {}


def test_secrets_of_verifiers_are_told_until_they_are_set(folder: Path) -> None:
    toml = folder / "train" / "a" / "task.toml"
    toml.write_text(toml.read_text() + SECRET)
    assert datasets([str(folder)], {})["secrets"] == {"GRADER_TOKEN": 1}
    assert datasets([str(folder)], {"GRADER_TOKEN": "t"})["secrets"] == {}


def test_several_datasets_keep_their_splits_apart(folder: Path) -> None:
    assert {"bundled/train": 32, "numbers/train": 2}.items() <= datasets(["bundled", str(folder)], {})["splits"].items()


def test_info_is_told_without_harbor_openenv_or_a_server() -> None:
    show = (
        "import sys, harbor_env.cli as cli; sys.argv[1:] = ['info', '--json']\ntry: cli.main()\nexcept SystemExit: pass"
    )
    heavy = "('harbor', 'openenv', 'transformers', 'aiohttp', 'starlette', 'fastapi', 'datasets')"
    program = f"{show}\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    document, _, loaded = done.stdout.rstrip().rpartition("\n")
    told = json.loads(document)
    assert loaded == "[]"
    assert set(told) == {"engine", "splits", "problems", "secrets", "harnesses", "sandboxes"}
    told |= {"problems": {"x": "wrong"}, "secrets": {"TOKEN": 3}}
    shown = _text(told)
    assert "x cannot be used: wrong" in shown
    assert "set TOKEN: 3 tasks are graded with it" in shown
