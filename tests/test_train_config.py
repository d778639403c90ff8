"""A training run's settings, from a file and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_integration.config import load

FILE = """
model: folder
servers: http://127.0.0.1:8001
harnesses: [mini-swe-agent, pi]
output_dir: out
training: {max_steps: 100}
"""


def test_settings_on_the_command_line_are_laid_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(FILE)
    config = load(path, ["training.max_steps=3", "harnesses={pi: 2, codex: 1}", "lora.r=16", "budgets.max_calls=6"])
    assert config.servers == ("http://127.0.0.1:8001",)
    assert config.training == {"max_steps": 3}
    assert config.harnesses == {"pi": 2, "codex": 1}
    assert config.lora == {"r": 16}
    assert load(path).harnesses == ("mini-swe-agent", "pi")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("modell=x", "Unknown settings: modell"),
        ("model=", "Missing settings: model"),
        ("max_steps", "not KEY=VALUE"),
        ("model.name=x", "not a group"),
        ("training=3", "training is not a group"),
        ("servers=3", "servers is not a name or a list of names"),
        ("harnesses=[pi, 3]", "harnesses is not a name or a list of names"),
        ("harnesses=[pi", "is not YAML"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_with_what_is_known(tmp_path: Path, setting: str, said: str) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(FILE)
    with pytest.raises(ValueError, match=said):
        load(path, [setting])


def test_a_file_that_is_not_yaml_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("model: [folder\nservers: x\n")
    with pytest.raises(ValueError, match=r"train\.yaml is not YAML: .*(\n.*)*line 2"):
        load(path)
    path.write_text(FILE.replace("{max_steps: 100}", ""))
    assert load(path).training == {}
