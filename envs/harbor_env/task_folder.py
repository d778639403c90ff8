"""One Harbor task in a folder: read, or refused with everything that is wrong with it.

Reads TOML and text only; Harbor is not imported. Invariant: a folder is read to the end before it is refused, so one
look tells all there is to mend.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harbor_env.errors import Problem, TaskError

AGENT_SECONDS = 3600.0
VERIFIER_SECONDS = 900.0
AROUND_SECONDS = 1800.0
"""Limits where nothing else gives one; the last is for sandbox, set-up and capture together."""

EXPECTED = "task.toml, instruction.md, environment/ and tests/test.sh"

_LEVELS = {"easy": 1, "medium": 2, "hard": 3}
_HOST_VARIABLE = re.compile(r"\$\{(\w+)\}")
_DEFINITIONS = ("Dockerfile", "docker-compose.yaml", "docker-compose.yml")
_POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_BYTES = 1024
_WHAT_FOR = {
    "instruction.md": "write what the agent is told into it",
    "test.sh": "add the script that writes /logs/verifier/reward.json",
    "environment": "add environment/Dockerfile, or name a docker_image under [environment] in task.toml",
}


@dataclass(frozen=True, slots=True)
class Task:
    """One task folder.

    `name` is its path below the dataset's folder. `instruction` is what an agent is told; for a task of several steps,
    those of all steps. Timeouts are in seconds, None where the task leaves them to Harbor. `secrets` are the host's
    environment variables its verifier cannot do without.
    """

    name: str
    path: Path
    instruction: str
    level: int | None = None
    split: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent_timeout: float | None = None
    verifier_timeout: float | None = None
    secrets: tuple[str, ...] = ()

    def time_limit(self, agent_timeout: float | None = None) -> float:
        """Seconds after which a rollout of it hangs: nothing it is made of may take that long.

        `agent_timeout` replaces the task's own where it is given.
        """
        agent = agent_timeout or self.agent_timeout or AGENT_SECONDS
        return agent + (self.verifier_timeout or VERIFIER_SECONDS) + AROUND_SECONDS


def load_task(path: Path, name: str = "", *, within: Path | None = None) -> Task:
    """The task in the folder `path`; no link in it may lead out of `within` (default: the folder itself).

    Raises TaskError with every problem it has.
    """
    name = name or path.name
    if not (path / "task.toml").is_file():
        raise TaskError(f"{path} is not a Harbor task: no task.toml; expected a folder with {EXPECTED}.")
    config, task = _read_config(path, name), None
    problems = [config] if isinstance(config, Problem) else []
    if not isinstance(config, Problem):
        steps = _steps(config)
        problems += _missing(path, name, config, steps)
        read = _read(path, name, config, steps)
        if isinstance(read, Problem):
            problems.append(read)
        else:
            task = read
    problems += _unusable_files(path, name, (within or path).resolve())
    if problems or task is None:
        raise TaskError(f"{path} is not a usable Harbor task", tuple(problems))
    return task


def _read_config(path: Path, name: str) -> dict[str, Any] | Problem:
    try:
        return tomllib.loads((path / "task.toml").read_text(encoding="utf-8"))
    except RecursionError:
        return Problem(name, "task.toml", "is nested too deep", "mend it: a task needs a few levels")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return Problem(name, "task.toml", f"cannot be read ({error})", "mend it: it is TOML in UTF-8")


def _steps(config: Mapping[str, Any]) -> list[str]:
    steps = config.get("steps", [])
    return [str(step.get("name", "")) for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def _missing(path: Path, name: str, config: Mapping[str, Any], steps: Sequence[str]) -> Iterator[Problem]:
    """What Harbor would miss when it runs the task."""
    instructions = [f"steps/{step}/instruction.md" for step in steps] or ["instruction.md"]
    tests = [f"steps/{step}/tests/test.sh" for step in steps] or ["tests/test.sh"]
    if steps and (path / "tests/test.sh").is_file():
        tests = []
    for file in [*instructions, *tests]:
        if not (path / file).is_file():
            yield Problem(name, file, "is not there", _WHAT_FOR[Path(file).name])
    environment = config.get("environment")
    if isinstance(environment, dict) and environment.get("docker_image"):
        return
    if not (path / "environment").is_dir():
        yield Problem(name, "environment/", "is not there", _WHAT_FOR["environment"])
    elif not any((path / "environment" / file).is_file() for file in _DEFINITIONS):
        yield Problem(name, "environment/Dockerfile", "is not there", _WHAT_FOR["environment"])


def _unusable_files(path: Path, name: str, within: Path) -> Iterator[Problem]:
    """Links that leave the dataset, and files that only stand for others."""
    for folder, folders, files in path.walk():
        for entry in sorted([*folders, *files]):
            file = folder / entry
            where = file.relative_to(path).as_posix()
            if file.is_symlink():
                if not file.resolve().is_relative_to(within):
                    yield Problem(name, where, "is a link that leaves the dataset", "put the file itself there")
            elif entry in files and _is_pointer(file):
                yield Problem(name, where, "is a Git LFS pointer", "install git-lfs, then fetch the dataset again")


def _is_pointer(file: Path) -> bool:
    if not file.is_file() or not len(_POINTER) < file.stat().st_size < _POINTER_BYTES:
        return False
    with file.open("rb") as opened:
        return opened.read(len(_POINTER)) == _POINTER


def _read(path: Path, name: str, config: Mapping[str, Any], steps: Sequence[str]) -> Task | Problem:
    files = [path / "steps" / step / "instruction.md" for step in steps] or [path / "instruction.md"]
    try:
        instruction = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    except UnicodeDecodeError as error:
        return Problem(name, "instruction.md", f"cannot be read ({error})", "write it in UTF-8")
    if any(file.is_file() for file in files) and not instruction.strip():
        return Problem(name, "instruction.md", "is empty", _WHAT_FOR["instruction.md"])
    try:
        return _task(path, name, instruction, config)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        return Problem(name, "task.toml", f"holds something else than expected ({error})", "mend that value")


def _task(path: Path, name: str, instruction: str, config: Mapping[str, Any]) -> Task:
    for step in _steps(config):
        if step in (".", "..") or "/" in step:
            raise ValueError(f"step {step!r} names no folder below steps/")
    metadata, verifier = _table(config, "metadata"), _table(config, "verifier")
    keywords = [*_table(config, "task").get("keywords", []), *metadata.get("tags", [])]
    level = metadata.get("level", _LEVELS.get(str(metadata.get("difficulty", "")).lower()))
    return Task(
        name=name,
        path=path,
        instruction=instruction,
        level=None if level is None else int(level),
        split=str(metadata.get("split", "")),
        tags=tuple(dict.fromkeys(str(word) for word in keywords)),
        metadata=metadata,
        agent_timeout=_seconds(_table(config, "agent")),
        verifier_timeout=_seconds(verifier),
        secrets=_secrets(config),
    )


def _secrets(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Host variables without a default in what the environment, the verifier or a step's verifier is given."""
    verifiers = [_table(config, "verifier"), *(_table(step, "verifier") for step in config.get("steps", []))]
    tables = [_table(config, "environment"), *verifiers, *(_table(verifier, "environment") for verifier in verifiers)]
    values = [str(value) for table in tables for value in _table(table, "env").values()]
    return tuple(dict.fromkeys(found for value in values for found in _HOST_VARIABLE.findall(value)))


def _table(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = config.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"[{name}] is not a table")
    return table


def _seconds(table: Mapping[str, Any]) -> float | None:
    given = table.get("timeout_sec")
    if given is None:
        return None
    seconds = float(given)
    if isinstance(given, bool) or not 0 < seconds < math.inf:
        raise ValueError(f"timeout_sec is {given}, not a number of seconds above 0")
    return seconds
