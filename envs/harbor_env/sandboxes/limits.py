"""Memory, CPU and process limits: cgroups where this machine lets us, weaker means where not, said in a note.

Invariant: what is not enforced, or only for each process, is named in `Enforcement.notes`.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harbor_env.sandboxes.cgroups import CONTROLLERS, PREFIX, Hierarchy, find_hierarchy

_CPU_PERIOD_US = 100_000


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
    elif limits.processes is not None:
        notes.append("processes not limited, because root's never are without cgroups")
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


def _make_v1(found: Hierarchy, name: str, limits: Limits) -> tuple[str, ...]:
    quota = None if limits.cpus is None else int(limits.cpus * _CPU_PERIOD_US)
    values = {
        "memory": {"memory.limit_in_bytes": limits.memory_bytes},
        "cpu": {"cpu.cfs_quota_us": quota},
        "pids": {"pids.max": limits.processes},
    }
    return tuple(
        _make(found.folders[word] / f"{PREFIX}{name}", values[word])
        for word in CONTROLLERS
        if any(values[word].values())
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
