"""Where this process may make cgroups: version 1 or 2, as root or in what was delegated to an ordinary user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PREFIX = "openenv-harbor-"
CONTROLLERS = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where child cgroups may be made. `version` 1 has one folder per controller, 2 a single one under ""."""

    version: int
    folders: Mapping[str, Path]


@lru_cache(maxsize=1)
def find_hierarchy() -> Hierarchy | str:
    """Where this process may make cgroups with all three controllers, or the reason why nowhere."""
    own = _own_cgroups(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    mounts = _cgroup_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    folders = {name: _below(mounts, name, own.get(name, "/")) for name in CONTROLLERS}
    if all(folder is not None for folder in folders.values()):
        found = {name: folder for name, folder in folders.items() if folder is not None}
        blocked = [str(folder) for folder in found.values() if not os.access(folder, os.W_OK)]
        return f"{blocked[0]} is not writable" if blocked else Hierarchy(1, found)
    unified = _below(mounts, "", own.get("", "/"))
    if unified is None:
        return "no cgroup file system is mounted"
    return find_v2(unified, mounts[""][1])


def find_v2(own: Path, top: Path, controllers: tuple[str, ...] = CONTROLLERS) -> Hierarchy | str:
    """The nearest cgroup above `own` (itself included) whose children may have limits and take our processes."""
    folder = own
    while folder.is_relative_to(top):
        if _is_ours(folder) and _hand_down(folder, controllers):
            return Hierarchy(2, {"": folder})
        folder = folder.parent
    if _is_ours(own) and _make_room(own) and _hand_down(own, controllers):
        return Hierarchy(2, {"": own})
    return (
        f"no writable cgroup with {', '.join(controllers)} at or above {own}; "
        "start under `systemd-run --user --scope -p Delegate=yes`, or as root"
    )


def _is_ours(folder: Path) -> bool:
    files = (folder / "cgroup.subtree_control", folder / "cgroup.procs")
    return os.access(folder, os.W_OK) and all(file.exists() and os.access(file, os.W_OK) for file in files)


def _hand_down(folder: Path, controllers: tuple[str, ...]) -> bool:
    """Whether children of `folder` have the controllers, after enabling those that are missing."""
    control = folder / "cgroup.subtree_control"
    missing = set(controllers) - set(control.read_text(encoding="ascii").split())
    if missing:
        try:
            control.write_text(" ".join(f"+{name}" for name in sorted(missing)), encoding="ascii")
        except OSError:  # a cgroup with processes of its own may not, except the topmost
            return False
    return set(controllers) <= set(control.read_text(encoding="ascii").split())


def _make_room(own: Path) -> bool:
    """Move the processes of a cgroup handed over to us into a child, so that it has only children."""
    leaf = own / f"{PREFIX}owner"
    try:
        leaf.mkdir(exist_ok=True)
        for pid in (own / "cgroup.procs").read_text(encoding="ascii").split():
            (leaf / "cgroup.procs").write_text(pid, encoding="ascii")
    except OSError:
        return False
    return True


def _own_cgroups(text: str) -> dict[str, str]:
    """Path of this process by controller, "" for the unified hierarchy."""
    own = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path))
    return own


def _cgroup_mounts(text: str) -> dict[str, tuple[str, Path]]:
    """(root, mount point) by controller."""
    mounts = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            mounts[""] = (left.split()[3], Path(left.split()[4]))
        elif kind == "cgroup":
            for name in options.split(","):
                mounts[name] = (left.split()[3], Path(left.split()[4]))
    return mounts


def _below(mounts: Mapping[str, tuple[str, Path]], name: str, own: str) -> Path | None:
    if name not in mounts:
        return None
    root, point = mounts[name]
    relative = os.path.relpath(own, root)
    path = point if relative.startswith("..") else point / relative
    return path if path.is_dir() else None
