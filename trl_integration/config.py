"""One training run as a YAML file: model, engine, environment servers, harnesses, reward, and TRL's own options.

    model: .cache/models/smollm2-sft
    engine_url: http://127.0.0.1:8000
    servers: [http://127.0.0.1:8001]
    harnesses: [mini-swe-agent, pi]          # or {mini-swe-agent: 3, pi: 1}, or stages of either
    split: train
    training: {max_steps: 100, learning_rate: 2.0e-4, num_generations: 8}
    lora: {r: 16}

`training` takes any field of TRL's `AsyncGRPOConfig`, `lora` any of PEFT's `LoraConfig`, `action` any of `HarborAction`
and `budgets` those of its budgets. `agent_kwargs` maps a harness to what its adapter is given, or is a file that does.
`weight_folder` is a folder through which whole weights travel, to an engine without a GPU. Every key can be set on the
command line: `training.max_steps=3`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any

import yaml

from trl_integration.rotation import Harnesses, Stage, rotation

IDENTITY = ("model", "harnesses", "split", "shuffle", "seed", "lora")
GROUPS = ("budgets", "action", "training", "lora")
"""Settings that hold settings."""
NEEDED = ("model", "servers", "harnesses", "output_dir")
PLAIN: Mapping[str, tuple[type, str]] = {
    "str": (str, "text"),
    "int": (int, "a whole number"),
    "bool": (bool, "true or false"),
}
"""How a plain setting is typed above its value, and how that is said."""
LEAST = {"retries": 0, "stop_after": 1, "stop_after_groups": 1}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """`engine` is the engine's kind and `served_model` its name for the model; `admin_key_env` names a variable.

    `harnesses` are names that take turns, weights by name, or stages of these. `shuffle` false takes the tasks in the
    order of their names. `bonus` false leaves the efficiency bonus out. `reward` as `module:name` replaces both.
    """

    model: str
    servers: tuple[str, ...]
    harnesses: Harnesses
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
    stop_after_groups: int = 64
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


def identity(config: TrainConfig) -> dict[str, Any]:
    """The settings by which a group of rollouts has its task and harness and weights have their shape, as plain values.

    With others a run that goes on would be another one.
    """
    settings = asdict(config)
    group = {"num_generations": config.training.get("num_generations")}
    return {name: settings[name] for name in IDENTITY} | group


def build(document: Mapping[str, Any]) -> TrainConfig:
    """The settings of a document; what is left empty is as if it were not there.

    ValueError: a key that is not known, one that is missing, or a value that is none of its kind.
    """
    given = {name: value for name, value in document.items() if value is not None}
    known = {one.name for one in fields(TrainConfig)}
    unknown = sorted(str(name) for name in given if name not in known)
    if unknown:
        raise ValueError(f"Unknown settings: {', '.join(unknown)}. Known are {', '.join(sorted(known))}.")
    missing = [name for name in NEEDED if given.get(name) in ("", [], {}, None)]
    if missing:
        raise ValueError(f"Missing settings: {', '.join(missing)}.")
    given["servers"] = _names("servers", given["servers"])
    given["harnesses"] = _harnesses(given["harnesses"])
    for name in GROUPS:
        if not isinstance(given.get(name, {}), Mapping) or not all(isinstance(key, str) for key in given.get(name, ())):
            raise ValueError(f"{name} is not a group of settings.")
    config = TrainConfig(**given)
    _refuse_other_kinds(config)
    return config


def _refuse_other_kinds(config: TrainConfig) -> None:
    for one in fields(config):
        value, (kind, told) = getattr(config, one.name), PLAIN.get(str(one.type), (object, ""))
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"{one.name} is {value!r}, which is not {told}.")
    for name, least in LEAST.items():
        if getattr(config, name) < least:
            raise ValueError(f"{name} is {getattr(config, name)}, and at least {least} means anything.")
    for url in (config.engine_url, *config.servers):
        if not re.match(r"https?://[^/]", url):
            raise ValueError(f"{url!r} is no address such as http://127.0.0.1:8000.")


def _harnesses(given: Any) -> Harnesses:
    in_stages = isinstance(given, list | tuple) and any(isinstance(one, Mapping) for one in given)
    found = tuple(_stage(one) for one in given) if in_stages else _mix(given)
    try:
        rotation(found)
    except ValueError as error:
        raise ValueError(f"harnesses: {error}") from None
    return found


def _stage(given: Any) -> Stage:
    groups = given.get("groups") if isinstance(given, Mapping) else None
    whole = groups is None or (isinstance(groups, int) and not isinstance(groups, bool))
    if not isinstance(given, Mapping) or not {"harnesses"} <= set(given) <= {"harnesses", "groups"} or not whole:
        raise ValueError(f"harnesses: a stage is such as {{harnesses: [mini-swe-agent], groups: 100}}, not {given!r}.")
    return Stage(_mix(given["harnesses"]), groups)


def _mix(given: Any) -> tuple[str, ...] | Mapping[str, float]:
    """Names that take turns, or their weights."""
    if not isinstance(given, Mapping):
        return _names("harnesses", given)
    if not all(isinstance(weight, Real) for weight in given.values()):
        raise ValueError("harnesses: a weight is a number, such as {mini-swe-agent: 3, pi: 1}.")
    _names("harnesses", list(given))
    return given


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML 1.1 takes 1e-5, without a point, for text; 1.2 and everybody else for a number."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
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
