"""Finds and removes what sandboxes of dead owners left in the scratch folder.

Invariant: a folder whose lock somebody holds is never touched. The owner and the keeper share one lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

_LOCK, _UNBORN = "lock", "lock.new"
_UNBORN_FOR_S = 60.0


def claim(folder: Path) -> int:
    """Make `folder` and hold its lock; the descriptor returned may be passed to other processes, and is the lock.

    What is written to it says, as JSON, which `cgroups` go with the folder.
    """
    folder.mkdir(mode=0o700, parents=True)
    fd = os.open(folder / _UNBORN, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (folder / _UNBORN).rename(folder / _LOCK)
    return fd


def sweep(scratch: Path) -> list[Path]:
    """Remove folders, and the cgroups they name, whose owner is dead; returns them."""
    if not scratch.is_dir():
        return []
    return [folder for folder in scratch.iterdir() if folder.is_dir() and _sweep_one(folder)]


def _sweep_one(folder: Path) -> bool:
    try:
        fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            if time.time() - folder.stat().st_mtime > _UNBORN_FOR_S:
                remove_tree(folder)
                return True
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _remove_named_cgroups(folder):
            return False  # its last processes are still being reaped; the folder names the cgroups for the next sweep
        remove_tree(folder)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _remove_named_cgroups(folder: Path) -> bool:
    try:
        spec = json.loads((folder / _LOCK).read_text(encoding="utf-8"))
    except ValueError:  # its owner died before it wrote anything
        return True
    return remove_cgroups(spec.get("cgroups", ()))


def remove_cgroups(paths: Iterable[str]) -> bool:
    """Remove cgroups that have no processes left; whether all are gone."""
    left = [Path(path) for path in paths]
    for path in left:
        with contextlib.suppress(OSError):
            path.rmdir()
    return not any(path.exists() for path in left)


def remove_tree(folder: Path) -> None:
    """Remove a folder, opening folders closed to their own owner (an overlay leaves such)."""
    if os.geteuid() != 0:
        for path, names, _ in os.walk(folder):
            for name in names:
                child = Path(path, name)
                if not child.is_symlink():
                    with contextlib.suppress(OSError):
                        child.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
