"""Find Harbor tasks: from a word such as `bundled` or a folder to a sorted list of tasks that can run.

Reads TOML and text only; Harbor is not imported. A dataset loads whole or not at all, so an index always means the same
task, and every unusable folder is named in one error.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harbor_env.errors import TaskError

BUNDLED = Path(__file__).parent / "bundled_tasks"
EXPECTED = "task.toml, instruction.md, environment/ and tests/test.sh"
SPLIT_OF_BUNDLED = "train"
ALL = "all"

_LEVELS = {"easy": 1, "medium": 2, "hard": 3}
_HOST_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SHOWN_ERRORS = 5


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


@dataclass(frozen=True, slots=True)
class Dataset(Sequence[Task]):
    """Tasks in order of their names; the order depends on nothing but the names."""

    name: str
    tasks: tuple[Task, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __getitem__(self, index: Any) -> Any:
        """The task at `index`, or a tuple of tasks for a slice; TaskError says which indices exist."""
        try:
            return self.tasks[index]
        except IndexError:
            last = len(self.tasks) - 1
            raise TaskError(f"{self.name} has no task {index}: its tasks are numbered 0 to {last}.") from None

    def find(self, wanted: str) -> Task:
        """The task of this name, or the only one whose name ends in it; TaskError lists the near ones."""
        exact = [task for task in self.tasks if task.name == wanted]
        ending = [task for task in self.tasks if task.name.endswith(wanted)]
        if len(exact or ending) == 1:
            return (exact or ending)[0]
        near = [task.name for task in ending or self.tasks]
        kind = "several tasks that end in" if ending else "no task named"
        raise TaskError(f"{self.name} has {kind} {wanted!r}; there are: {_some(near)}.")

    def choose(self, seed: int) -> Task:
        """One task, the same for the same seed."""
        return random.Random(seed).choice(self.tasks)


@dataclass(frozen=True, slots=True)
class SpecKind:
    """One way to name a dataset: whether a spec is of this kind, and the folder it stands for."""

    recognises: Callable[[str], bool]
    folder: Callable[[str], Path]
    default_split: str = ""


def _is_folder(spec: str) -> bool:
    try:
        return Path(spec).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):  # too long, an unknown ~user, a null character
        return False


def _not_fetched(spec: str) -> Path:
    raise TaskError(
        f"{spec!r} names a dataset elsewhere, and datasets are not fetched from here: clone or download it, then give"
        " the folder."
    )


DATASETS: Mapping[str, SpecKind] = {
    "bundled": SpecKind(lambda spec: spec == "bundled", lambda spec: BUNDLED, SPLIT_OF_BUNDLED),
    "folder": SpecKind(_is_folder, lambda spec: Path(spec).expanduser()),
    "url": SpecKind(lambda spec: "://" in spec or spec.startswith("git@"), _not_fetched),
    "registry": SpecKind(lambda spec: bool(re.fullmatch(r"[\w.-]+@[\w.-]+", spec)), _not_fetched),
    "repository": SpecKind(lambda spec: bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@\S+)?", spec)), _not_fetched),
}
"""Kinds of specs, tried in this order."""


def load_dataset(spec: str | Path = "bundled", *, split: str | None = None) -> Dataset:
    """The dataset `spec` names: `bundled`, a folder of tasks (nested at will), or one task's folder.

    A split is a folder of that name below the dataset, or the `split` its tasks declare in [metadata]. Without one,
    `bundled` means its training tasks and a folder means everything below it; `all` means everything anywhere.
    Raises TaskError, in one sentence, where there is nothing to run.
    """
    spec = str(spec)
    kind = next((kind for kind in DATASETS.values() if kind.recognises(spec)), None)
    if kind is None:
        raise TaskError(
            f"{spec!r} is no dataset: there is no such folder; expected 'bundled', a folder of Harbor tasks, or one"
            " task's folder."
        )
    root = kind.folder(spec).resolve()
    split = split or kind.default_split
    if split in ("", ALL):
        return Dataset(spec, _load_all(root, root))
    if (root / split).is_dir() and not (root / "task.toml").exists():
        return Dataset(f"{spec}/{split}", _load_all(root / split, root / split))
    tasks = _load_all(root, root)
    chosen = tuple(task for task in tasks if task.split == split)
    if not chosen:
        splits = {task.split for task in tasks if task.split}
        raise TaskError(f"{spec!r} has no split {split!r}; there is: {_some(sorted({*splits, ALL}))}.")
    return Dataset(f"{spec}/{split}", chosen)


def load_task(path: Path, name: str = "") -> Task:
    """The task in the folder `path`; TaskError lists everything it lacks."""
    config = _read_config(path)
    steps = [str(step.get("name", "")) for step in config.get("steps", []) if isinstance(step, dict)]
    missing = _missing(path, config, steps)
    if missing:
        raise TaskError(f"{path} is not a usable Harbor task: no {', no '.join(missing)}; expected {EXPECTED}.")
    try:
        return _task(path, name or path.name, config, steps)
    except (TypeError, ValueError, AttributeError) as error:
        raise TaskError(f"{path} is not a usable Harbor task: {error}.") from error


def _load_all(folder: Path, root: Path) -> tuple[Task, ...]:
    paths = sorted(_task_folders(folder))
    if not paths:
        raise TaskError(
            f"{folder} is not a Harbor task: no task.toml here or below; expected a folder with {EXPECTED}."
        )
    tasks, errors = [], []
    for path in paths:
        try:
            tasks.append(load_task(path, path.relative_to(root).as_posix() if path != root else path.name))
        except TaskError as error:
            errors.append(str(error))
    if len(errors) == 1:
        raise TaskError(errors[0])
    if errors:
        raise TaskError(f"{len(errors)} of {len(paths)} tasks in {folder} cannot be used: {_some(errors, ' ')}")
    return tuple(tasks)


def _task_folders(folder: Path) -> Iterator[Path]:
    """Folders with a task.toml, not looking inside them nor into hidden folders or links."""
    if (folder / "task.toml").is_file():
        yield folder
        return
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
            yield from _task_folders(child)


def _read_config(path: Path) -> dict[str, Any]:
    if not (path / "task.toml").is_file():
        raise TaskError(f"{path} is not a Harbor task: no task.toml; expected a folder with {EXPECTED}.")
    try:
        return tomllib.loads((path / "task.toml").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} is not a usable Harbor task: task.toml cannot be read ({error}).") from error


def _missing(path: Path, config: Mapping[str, Any], steps: Sequence[str]) -> list[str]:
    """What Harbor would miss when it runs the task."""
    instructions = [f"steps/{step}/instruction.md" for step in steps] or ["instruction.md"]
    tests = [f"steps/{step}/tests/test.sh" for step in steps] or ["tests/test.sh"]
    if steps and (path / "tests/test.sh").is_file():
        tests = []
    missing = [name for name in [*instructions, *tests] if not (path / name).is_file()]
    environment = config.get("environment")
    has_image = isinstance(environment, dict) and environment.get("docker_image")
    if not has_image and not (path / "environment").is_dir():
        missing.append("environment/")
    return missing


def _task(path: Path, name: str, config: Mapping[str, Any], steps: Sequence[str]) -> Task:
    metadata, verifier = _table(config, "metadata"), _table(config, "verifier")
    keywords = [*_table(config, "task").get("keywords", []), *metadata.get("tags", [])]
    files = [path / "steps" / step / "instruction.md" for step in steps] or [path / "instruction.md"]
    level = metadata.get("level", _LEVELS.get(str(metadata.get("difficulty", "")).lower()))
    env = {**_table(config, "environment").get("env", {}), **verifier.get("env", {})}
    return Task(
        name=name,
        path=path,
        instruction="\n".join(file.read_text(encoding="utf-8") for file in files),
        level=None if level is None else int(level),
        split=str(metadata.get("split", "")),
        tags=tuple(dict.fromkeys(str(word) for word in keywords)),
        metadata=metadata,
        agent_timeout=_seconds(_table(config, "agent")),
        verifier_timeout=_seconds(verifier),
        secrets=tuple(dict.fromkeys(found for value in env.values() for found in _HOST_VARIABLE.findall(str(value)))),
    )


def _table(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = config.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"[{name}] in task.toml is not a table")
    return table


def _seconds(table: Mapping[str, Any]) -> float | None:
    seconds = table.get("timeout_sec")
    return None if seconds is None else float(seconds)


def _some(items: Sequence[str], separator: str = ", ") -> str:
    more = len(items) - _SHOWN_ERRORS
    return separator.join(items[:_SHOWN_ERRORS]) + (f"{separator}and {more} more" if more > 0 else "")
