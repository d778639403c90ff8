"""Memory, CPU and process limits: cgroups where this machine lets us, weaker means where not, said in a note.

Invariant: what is not enforced, or only for each process, is named in `Enforcement.notes`.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

PREFIX = "openenv-harbor-"
_CPU_PERIOD_US = 100_000
_V1 = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True)
class Limits:
    """Wanted limits; None for none."""

    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Enforcement:
    """How limits are kept for one sandbox. `cgroups` exist already; `cpus` is a CPU affinity, empty for all."""

    name: str = ""
    cgroups: tuple[str, ...] = ()
    rlimits: Mapping[str, int] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


NO_LIMITS = Enforcement()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where child cgroups may be made. `version` 1 has one folder per controller, 2 a single one under ""."""

    version: int
    folders: Mapping[str, Path]


def enforce(limits: Limits, hierarchy: Hierarchy | str | None = None) -> Enforcement:
    """Make the cgroups for one sandbox. `hierarchy` is for tests; a string is the reason there is none."""
    name = uuid.uuid4().hex
    wanted = [word for word, value in _named(limits).items() if value is not None]
    if not wanted:
        return Enforcement(name=name)
    found = find_hierarchy() if hierarchy is None else hierarchy
    if isinstance(found, str):
        return _without_cgroups(name, limits, found)
    try:
        paths = _make_v2(found, name, limits) if found.version == 2 else _make_v1(found, name, limits)
    except OSError as error:
        return _without_cgroups(name, limits, f"{error.filename}: {error.strerror}")
    return Enforcement(name=name, cgroups=paths)


def _named(limits: Limits) -> dict[str, float | None]:
    return {"memory": limits.memory_bytes, "cpu": limits.cpus, "pids": limits.processes}


def _without_cgroups(name: str, limits: Limits, reason: str) -> Enforcement:
    rlimits: dict[str, int] = {}
    cpus: tuple[int, ...] = ()
    notes = [f"limits not enforced by cgroups: {reason}"]
    if limits.processes is not None and os.geteuid() != 0:
        rlimits["processes"] = limits.processes
        notes.append("processes limited by rlimit")
    if limits.memory_bytes is not None:
        rlimits["data"] = limits.memory_bytes
        notes.append("memory limited for each process, not in sum")
    if limits.cpus is not None:
        cpus = _affinity(limits.cpus, name)
        notes.append(f"CPU limited to {len(cpus)} of this machine's processors by affinity")
    return Enforcement(name=name, rlimits=rlimits, cpus=cpus, notes=("; ".join(notes),))


def _affinity(cpus: float, name: str) -> tuple[int, ...]:
    """Whole processors, spread over the machine by the sandbox's name."""
    available = sorted(os.sched_getaffinity(0))
    count = min(len(available), math.ceil(cpus))
    start = int(name[:8], 16) % len(available)
    return tuple(sorted(available[(start + step) % len(available)] for step in range(count)))


@lru_cache(maxsize=1)
def find_hierarchy() -> Hierarchy | str:
    """Where this process may make cgroups with all three controllers, or the reason why nowhere."""
    own = _own_cgroups(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    mounts = _cgroup_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    folders = {name: _below(mounts, name, own.get(name, "/")) for name in _V1}
    if all(folder is not None for folder in folders.values()):
        found = {name: folder for name, folder in folders.items() if folder is not None}
        blocked = [str(folder) for folder in found.values() if not os.access(folder, os.W_OK)]
        return f"{blocked[0]} is not writable" if blocked else Hierarchy(1, found)
    unified = _below(mounts, "", own.get("", "/"))
    if unified is None:
        return "no cgroup file system is mounted"
    return find_v2(unified, mounts[""][1])


def find_v2(own: Path, top: Path) -> Hierarchy | str:
    """The nearest cgroup above `own` (itself included) whose children may have limits and take our processes."""
    folder = own
    while folder.is_relative_to(top):
        control = folder / "cgroup.subtree_control"
        if control.exists() and os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
            if set(_V1) <= set(control.read_text(encoding="ascii").split()):
                return Hierarchy(2, {"": folder})
            if _delegate(folder, control):
                return Hierarchy(2, {"": folder})
        folder = folder.parent
    return (
        f"no writable cgroup with memory, cpu and pids at or above {own}; "
        "start under `systemd-run --user --scope -p Delegate=yes`, or as root"
    )


def _delegate(folder: Path, control: Path) -> bool:
    try:
        control.write_text(" ".join(f"+{name}" for name in _V1), encoding="ascii")
    except OSError:
        return False
    return set(_V1) <= set(control.read_text(encoding="ascii").split())


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


def _make_v1(found: Hierarchy, name: str, limits: Limits) -> tuple[str, ...]:
    quota = None if limits.cpus is None else int(limits.cpus * _CPU_PERIOD_US)
    values = {
        "memory": {"memory.limit_in_bytes": limits.memory_bytes},
        "cpu": {"cpu.cfs_quota_us": quota},
        "pids": {"pids.max": limits.processes},
    }
    return tuple(
        _make(found.folders[word] / f"{PREFIX}{name}", values[word]) for word in _V1 if any(values[word].values())
    )


def _make_v2(found: Hierarchy, name: str, limits: Limits) -> tuple[str, ...]:
    quota = None if limits.cpus is None else f"{int(limits.cpus * _CPU_PERIOD_US)} {_CPU_PERIOD_US}"
    swap = None if limits.memory_bytes is None else 0
    values = {
        "memory.max": limits.memory_bytes,
        "memory.swap.max": swap,
        "cpu.max": quota,
        "pids.max": limits.processes,
    }
    return (_make(found.folders[""] / f"{PREFIX}{name}", values),)


def _make(folder: Path, values: Mapping[str, int | str | None]) -> str:
    folder.mkdir()
    for file, value in values.items():
        if value is not None and ((folder / file).exists() or file != "memory.swap.max"):
            (folder / file).write_text(str(value), encoding="ascii")
    return str(folder)
