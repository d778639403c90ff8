"""The folder a Dockerfile may copy from. Invariant: nothing outside it is ever read, through `..` or through links."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from harbor_env.errors import TaskError


def context_digest(folder: Path) -> str:
    """Names, modes, link targets and contents of everything in `folder`."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        total.update(f"{path.relative_to(folder)}\0{info.st_mode:o}\0".encode())
        if path.is_symlink():
            total.update(os.fsencode(path.readlink()))
        elif path.is_file():
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


class Context:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        ignore = self.folder / ".dockerignore"
        lines = ignore.read_text(encoding="utf-8").splitlines() if ignore.is_file() else []
        self.ignored = [line.strip().strip("/") for line in lines if line.strip() and not line.startswith("#")]

    def find(self, pattern: str) -> list[Path]:
        """What `pattern` names. Raises TaskError if that is nothing, or lies outside."""
        parts = [part for part in PurePosixPath("/", pattern).parts[1:] if part != "."]
        if ".." in parts:
            raise TaskError(f"COPY {pattern}: the path leaves the task's environment folder")
        if not parts:
            return [self.folder]
        found = (
            sorted(self.folder.glob("/".join(parts))) if set("*?[") & set(pattern) else [self.folder.joinpath(*parts)]
        )
        real = [path for path in found if path.exists() and not self.is_ignored(path)]
        if not real:
            raise TaskError(f"COPY {pattern}: there is no such file in {self.folder}")
        for path in real:
            if not path.resolve().is_relative_to(self.folder):
                raise TaskError(f"COPY {pattern}: {path.name} leads outside the task's environment folder")
        return real

    def is_ignored(self, path: Path) -> bool:
        """Whether .dockerignore leaves `path` out; the last pattern that matches decides."""
        name = path.relative_to(self.folder).as_posix()
        ignored = False
        for line in self.ignored:
            pattern = line.lstrip("!").replace("**/", "*")
            if fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, f"{pattern}/*"):
                ignored = not line.startswith("!")
        return ignored

    def members(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """(path, name below the target) of a folder and all below it, without what is ignored."""
        yield folder, "."
        for path in sorted(folder.rglob("*")):
            if not self.is_ignored(path):
                yield path, path.relative_to(folder).as_posix()
