"""A training run's settings, from a file and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_integration.config import load
from trl_integration.rotation import rotation

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
        ("harnesses=[{harnesses: [pi]}, {harnesses: [codex]}]", "Every stage but the last has a number of groups"),
        ("harnesses=[{harnesses: [pi], groups: 3}]", "The last stage goes on to the run's end"),
        ("harnesses=[{harnesses: [pi], groups: 0}, {harnesses: [codex]}]", "Every stage but the last"),
        ("harnesses=[{harnesses: [pi], groups: many}, {harnesses: [codex]}]", "a stage is such as"),
        ("harnesses=[{pi: 3}, {codex: 1}]", "a stage is such as"),
        ("harnesses=[{harnesses: [pi], groups: 3}, codex]", "a stage is such as .* not 'codex'"),
        ("harnesses=[{harnesses: [{harnesses: pi}], groups: 3}, {harnesses: pi}]", "not a name or a list of names"),
        ("harnesses=[{harnesses: [pi, pi], groups: 3}, {harnesses: pi}]", "A harness is named twice"),
        ("harnesses=[pi, pi]", "harnesses: A harness is named twice"),
        ("harnesses={pi: many}", "harnesses: a weight is a number"),
        ("harnesses={pi: .nan}", "harnesses: Weights are finite"),
        ("harnesses={pi: 0, codex: -1}", "harnesses: Weights are finite"),
        ("harnesses={1: 2}", "harnesses is not a name or a list of names"),
        ("servers=localhost:8001", "'localhost:8001' is no address such as"),
        ("engine_url=http://", "'http://' is no address such as"),
        ("model=3", "model is 3, which is not text"),
        ("output_dir=[a]", r"output_dir is \['a'\], which is not text"),
        ("seed=1.5", "seed is 1.5, which is not a whole number"),
        ("seed=true", "seed is True, which is not a whole number"),
        ("bonus='no'", "bonus is 'no', which is not true or false"),
        ("retries=-1", "retries is -1, and at least 0"),
        ("stop_after=0", "stop_after is 0, and at least 1"),
        ("lora=[r]", "lora is not a group"),
        ("training={3: 4}", "training is not a group"),
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


def test_a_setting_left_empty_is_as_if_it_were_not_there_and_numbers_need_no_point(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(FILE + "engine_url:\nlora:\nbudgets:\n")
    config = load(path, ["training.learning_rate=1e-5", "training.warmup=-2E+3", "served_model=3e"])
    assert config.engine_url == "http://127.0.0.1:8000"
    assert (config.lora, config.budgets) == (None, {})
    assert config.training == {"max_steps": 100, "learning_rate": 1e-5, "warmup": -2000.0}
    assert config.served_model == "3e"


def test_a_key_that_is_no_word_is_unknown_beside_one_that_is(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(FILE + "1: 2\nfoo: 3\n")
    with pytest.raises(ValueError, match="Unknown settings: 1, foo"):
        load(path)


def test_stages_are_a_schedule(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(FILE)
    stages = "[{harnesses: pi, groups: 100}, {harnesses: {pi: 1, codex: 0}, groups: 20}, {harnesses: [codex, pi]}]"
    plan = rotation(load(path, [f"harnesses={stages}"]).harnesses, tasks=7)
    assert plan.harnesses == ("pi", "codex")
    assert {plan(group) for group in range(120)} == {"pi"}
    assert {plan(group) for group in (120, 121)} == {"codex", "pi"}
