"""Find Harbor tasks: from a word, a folder or an address to a sorted list of tasks that can run.

Harbor is imported only for its registry. A dataset loads whole or not at all, so an index always means the same task,
and everything wrong with it is in one error.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harbor_env.dataset_sources import BUNDLED, DATASETS, Source, find_source
from harbor_env.errors import Problem, TaskError
from harbor_env.task_folder import EXPECTED, Task, load_task

__all__ = [
    "ALL",
    "BUNDLED",
    "DATASETS",
    "EXPECTED",
    "Dataset",
    "Task",
    "check_secrets",
    "load_dataset",
    "load_task",
]

ALL = "all"
_SHOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Dataset(Sequence[Task]):
    """Tasks in order of their names; the order depends on nothing but the names.

    `revision` is the commit or version the dataset was pinned to, "" for a folder of the user's own.
    """

    name: str
    tasks: tuple[Task, ...]
    revision: str = ""

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


def load_dataset(spec: str | Path = "bundled", *, split: str | None = None) -> Dataset:
    """The dataset `spec` names: see `dataset_sources.DATASETS` for the ways to name one.

    A split is a folder of that name below the dataset, or the `split` its tasks declare in [metadata]; `NAME=FOLDER`
    calls a folder by another name, and several are separated by commas. Without one, `bundled` means its training tasks
    and anything else all of it; `all` means everything anywhere. Raises TaskError with all that is wrong.
    """
    spec = str(spec)
    source, default_split = find_source(spec)
    source = Source(source.folder.resolve(), source.revision)
    split = split or default_split
    if split in ("", ALL):
        return Dataset(spec, _load_all(source.folder, source.folder), source.revision)
    wanted = [part.strip() for part in split.split(",") if part.strip()]
    chosen: dict[Path, Task] = {}
    for part in wanted:
        for task in _split(spec, source, part, alone=len(wanted) == 1):
            chosen.setdefault(task.path, task)
    return Dataset(f"{spec}/{split}", tuple(chosen.values()), source.revision)


def check_secrets(tasks: Iterable[Task], variables: Mapping[str, str]) -> None:
    """TaskError with the list where a task's verifier needs environment variables that are not set."""
    problems = tuple(
        Problem(task.name, name, "is not set, and its verifier needs it", f"export {name}=...")
        for task in tasks
        for name in task.secrets
        if not variables.get(name)
    )
    if problems:
        names = ", ".join(dict.fromkeys(problem.file for problem in problems))
        raise TaskError(f"Set {names} first: without them there are tasks that cannot be graded", problems)


def _split(spec: str, source: Source, split: str, *, alone: bool) -> tuple[Task, ...]:
    """The tasks of one split; their names are relative to its folder where it is the only one asked for."""
    name, _, place = split.partition("=")
    root, folder = source.folder, (source.folder / (place or name)).resolve()
    is_below = folder.is_relative_to(root) and folder != root
    if is_below and folder.is_dir() and not (root / "task.toml").exists():
        tasks = _load_all(folder, folder if alone else root, within=root)
        return tuple(replace(task, split=task.split or name) for task in tasks)
    tasks = _load_all(root, root)
    chosen = tuple(task for task in tasks if task.split == (place or name))
    if not chosen:
        splits = {task.split for task in tasks if task.split}
        folders = {task.name.partition("/")[0] for task in tasks if "/" in task.name}
        raise TaskError(f"{spec!r} has no split {split!r}; there is: {_some(sorted({*splits, *folders, ALL}))}.")
    return chosen


def _load_all(folder: Path, root: Path, *, within: Path | None = None) -> tuple[Task, ...]:
    """Every task below `folder`, named from `root`; TaskError lists the problems of all of them."""
    paths = sorted(_task_folders(folder))
    if not paths:
        raise TaskError(
            f"{folder} is not a Harbor task: no task.toml here or below; expected a folder with {EXPECTED}."
        )
    tasks, errors = [], []
    for path in paths:
        try:
            name = path.relative_to(root).as_posix() if path != root else path.name
            tasks.append(load_task(path, name, within=within or root))
        except TaskError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        problems = tuple(problem for error in errors for problem in error.problems)
        raise TaskError(f"{len(errors)} of {len(paths)} tasks in {folder} cannot be used", problems)
    return tuple(tasks)


def _task_folders(folder: Path) -> Iterator[Path]:
    """Folders with a task.toml, not looking inside them nor into hidden folders or links."""
    if (folder / "task.toml").is_file():
        yield folder
        return
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
            yield from _task_folders(child)


def _some(items: Sequence[str], separator: str = ", ") -> str:
    more = len(items) - _SHOWN_ERRORS
    return separator.join(items[:_SHOWN_ERRORS]) + (f"{separator}and {more} more" if more > 0 else "")
