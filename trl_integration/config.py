"""One training run as a YAML file: model, engine, environment servers, harnesses, reward, and TRL's own options.

    model: .cache/models/smollm2-sft
    engine_url: http://127.0.0.1:8000
    servers: [http://127.0.0.1:8001]
    harnesses: [mini-swe-agent, pi]          # or {mini-swe-agent: 3, pi: 1}
    split: train
    training: {max_steps: 100, learning_rate: 2.0e-4, num_generations: 8}
    lora: {r: 16}

`training` takes any field of TRL's `AsyncGRPOConfig`, `lora` any of PEFT's `LoraConfig`, `action` any of `HarborAction`
and `budgets` those of its budgets. `agent_kwargs` maps a harness to what its adapter is given, or is a file that does.
`weight_folder` is a folder through which whole weights travel, to an engine without a GPU. Every key can be set on the
command line: `training.max_steps=3`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

GROUPS = ("budgets", "action", "training")
"""Settings that hold settings; a file may leave one empty."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """`engine` is the engine's kind and `served_model` its name for the model; `admin_key_env` names a variable.

    `shuffle` false takes the tasks in the order of their names. `bonus` false leaves the efficiency bonus out.
    `reward` as `module:name` replaces both.
    """

    model: str
    servers: tuple[str, ...]
    harnesses: tuple[str, ...] | Mapping[str, float]
    output_dir: str
    engine_url: str = "http://127.0.0.1:8000"
    engine: str = "vllm"
    served_model: str = "policy"
    split: str = "train"
    sandbox: str = "local"
    bonus: bool = True
    reward: str = ""
    seed: int = 0
    shuffle: bool = True
    retries: int = 1
    stop_after: int = 32
    drop_without_contrast: bool = False
    admin_key_env: str = ""
    budgets: Mapping[str, int] = field(default_factory=dict)
    agent_kwargs: Mapping[str, Any] | str = ""
    action: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, Any] | None = None
    weight_folder: str = ""


def load(path: Path | None, settings: Sequence[str] = ()) -> TrainConfig:
    """Read a file and lay `key=value` settings over it, values as YAML. ValueError says what is wrong."""
    document = _yaml(path.read_text(encoding="utf-8"), str(path)) if path else {}
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a mapping of settings.")
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{setting!r} is not KEY=VALUE.")
        _set(document, key.split("."), _yaml(value, setting))
    return build(document)


def build(document: Mapping[str, Any]) -> TrainConfig:
    """The settings of a document. ValueError: a key that is not known, or one that is missing."""
    known = {one.name for one in fields(TrainConfig)}
    unknown = sorted(set(document) - known)
    if unknown:
        raise ValueError(f"Unknown settings: {', '.join(unknown)}. Known are {', '.join(sorted(known))}.")
    missing = [name for name in ("model", "servers", "harnesses", "output_dir") if not document.get(name)]
    if missing:
        raise ValueError(f"Missing settings: {', '.join(missing)}.")
    given = dict(document)
    given["servers"] = _names("servers", given["servers"])
    if not isinstance(given["harnesses"], Mapping):
        given["harnesses"] = _names("harnesses", given["harnesses"])
    for name in GROUPS:
        if not isinstance(given.get(name) or {}, Mapping):
            raise ValueError(f"{name} is not a group of settings.")
        given[name] = given.get(name) or {}
    return TrainConfig(**given)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is not YAML: {error}") from None


def _names(key: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} is not a name or a list of names.")
    return tuple(names)


def _set(document: dict[str, Any], keys: list[str], value: Any) -> None:
    *parents, last = keys
    for parent in parents:
        inner = document.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{parent} is not a group of settings.")
        document = inner
    document[last] = value
