"""Where a dataset comes from: a word, a folder, a git repository, Hugging Face or Harbor's registry.

A kind of spec is one line in `DATASETS`. Invariant: a source yields a folder on this machine, and what pins it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harbor_env.errors import TaskError
from harbor_env.git_source import Repository, fetch, is_address, parse_repository
from harbor_env.registry_source import fetch_registered

BUNDLED = Path(__file__).parent / "bundled_tasks"
SPLIT_OF_BUNDLED = "train"


@dataclass(frozen=True, slots=True)
class Source:
    """A folder of tasks. `revision` is the commit or version it was pinned to, "" for a folder of the user's own."""

    folder: Path
    revision: str = ""


@dataclass(frozen=True, slots=True)
class SpecKind:
    """One way to name a dataset: whether a spec is of this kind, and how what it stands for is got."""

    recognises: Callable[[str], bool]
    fetch: Callable[[str], Source]
    default_split: str = ""


def _is_folder(spec: str) -> bool:
    try:
        return Path(spec).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):  # too long, an unknown ~user, a null character
        return False


def _cloned(parse: Callable[[str], Repository]) -> Callable[[str], Source]:
    def fetched(spec: str) -> Source:
        repository = parse(spec)
        checkout, commit = fetch(repository)
        folder = (checkout / repository.folder).resolve()
        if not folder.is_relative_to(checkout.resolve()) or not folder.is_dir():
            raise TaskError(f"{spec!r} has no folder {repository.folder!r} at commit {commit}.")
        return Source(folder, commit)

    return fetched


def _registered(spec: str) -> Source:
    return Source(*fetch_registered(spec.removeprefix("registry:")))


DATASETS: Mapping[str, SpecKind] = {
    "bundled": SpecKind(lambda spec: spec == "bundled", lambda spec: Source(BUNDLED), SPLIT_OF_BUNDLED),
    "folder": SpecKind(_is_folder, lambda spec: Source(Path(spec).expanduser())),
    "git": SpecKind(is_address, _cloned(parse_repository)),
    "hugging face": SpecKind(lambda spec: spec.startswith("hf:"), _cloned(parse_repository)),
    "registry": SpecKind(
        lambda spec: spec.startswith("registry:") or bool(re.fullmatch(r"\w[\w.-]*@[\w.-]+", spec)), _registered
    ),
    "github": SpecKind(lambda spec: bool(re.fullmatch(r"\w[\w.-]*/[\w.-]+([@#].*)?", spec)), _cloned(parse_repository)),
}
"""Kinds of specs, tried in this order."""


def find_source(spec: str) -> tuple[Source, str]:
    """The source `spec` names and the split it means where none is given. TaskError: it names nothing."""
    kind = next((kind for kind in DATASETS.values() if kind.recognises(spec)), None)
    if kind is None:
        raise TaskError(
            f"{spec[:200]!r} is no dataset: there is no such folder; expected 'bundled', a folder of Harbor tasks, one"
            " task's folder, a git repository (org/name on GitHub, hf:org/name, or a URL; @ref pins it), or a name and"
            " version of Harbor's registry (name@version)."
        )
    return kind.fetch(spec), kind.default_split
