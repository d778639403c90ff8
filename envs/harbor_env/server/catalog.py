"""The tasks a server offers, by split: what openenv's Task API tells and what `reset` picks from.

Invariant: nothing a client names leaves the datasets the server was started with; a split is looked up, never joined
to a path. Tasks are read when first asked for and kept; asking has no other effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from harbor_env.errors import TaskError
from harbor_env.tasks import ALL, Dataset, Task, load_dataset

TYPES = {"train": "train", "validation": "validation", "valid": "validation", "dev": "validation", "test": "test"}
HELD_OUT = "heldout"
_PLAIN = re.compile(r"\w[\w.-]*")
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Chosen:
    """A task and where it stands."""

    split: str
    index: int
    task: Task


class Catalog:
    """Datasets by their specs. With several, a split is called DATASET/SPLIT, where DATASET is the last part of a spec.

    Raises TaskError, on first use, with the list of what is wrong.
    """

    def __init__(self, specs: Sequence[str] = ("bundled",)) -> None:
        self._specs = tuple(specs)

    @cached_property
    def splits(self) -> Mapping[str, Dataset]:
        found: dict[str, Dataset] = {}
        for spec in self._specs:
            prefix = f"{Path(spec).name}/" if len(self._specs) > 1 else ""
            for split, dataset in _splits_of(spec).items():
                name = f"{prefix}{split}"
                if name in found:
                    raise TaskError(
                        f"Two datasets are both called {Path(spec).name!r}: give them folders of other names."
                    )
                found[name] = dataset
        return found

    @property
    def default(self) -> str:
        """The split meant where none is named: training tasks where there are some."""
        return next((name for name in self.splits if name.rpartition("/")[2] == "train"), next(iter(self.splits)))

    def split(self, name: str = "") -> Dataset:
        """Raises TaskError with the splits there are."""
        found = self.splits.get(name or self.default)
        if found is None:
            raise TaskError(f"There is no split {name!r} here; there is: {', '.join(self.splits)}.")
        return found

    def choose(self, split: str = "", task: str | int | None = None, seed: int | None = None) -> Chosen:
        """A task by name or index; else by `seed`, of which consecutive ones visit every task; else the first.

        Raises TaskError.
        """
        tasks = self.split(split)
        if task is not None and not isinstance(task, str) and type(task) is not int:
            raise TaskError(f"task: expected a name or an index, not {str(task)[:_SHOWN]}.")
        if seed is not None and type(seed) is not int:
            raise TaskError(f"seed: expected a whole number, not {str(seed)[:_SHOWN]}.")
        if isinstance(task, str):
            wanted = tasks.find(task)
            index = next(index for index, found in enumerate(tasks) if found is wanted)
        elif task is not None:
            index = task
        else:
            index = (seed or 0) % len(tasks)
        if not 0 <= index < len(tasks):
            raise TaskError(f"{tasks.name} has no task {index}: its tasks are numbered 0 to {len(tasks) - 1}.")
        return Chosen(split or self.default, index, tasks[index])


def split_type(name: str) -> str:
    """What openenv calls a split of this name: train, validation or test."""
    return TYPES.get(name.rpartition("/")[2], "test" if name.rpartition("/")[2] == HELD_OUT else "validation")


def _splits_of(spec: str) -> dict[str, Dataset]:
    """Every split of one dataset, `all` last: folders of tasks on its first level, and splits its tasks declare.

    As `load_dataset` tells them apart, from one look: a split that is a folder has its tasks named from there.
    """
    everything = load_dataset(spec, split=ALL)
    found: dict[str, list[Task]] = {}
    for task in everything:
        folder, _, rest = task.name.partition("/")
        if rest:
            found.setdefault(folder, []).append(replace(task, name=rest, split=task.split or folder))
    folders = set(found)
    for task in everything:
        if task.split and task.split not in folders:
            found.setdefault(task.split, []).append(task)
    plain = sorted((name for name in found if _PLAIN.fullmatch(name) and name != ALL), key=_by_use)
    splits = {name: replace(everything, name=f"{spec}/{name}", tasks=tuple(found[name])) for name in plain}
    return {**splits, ALL: everything}


def _by_use(name: str) -> tuple[bool, str]:
    return name != "train", name
