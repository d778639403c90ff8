"""What a sandbox's root is made of before anything is added: the host's programs, or a root file system of one's own.

Invariant: of the host, a sandbox sees its programs and configuration, never homes, data folders, sockets, or a file
that the host hides from its ordinary users.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.places import Places
from harbor_env.sandboxes.skeleton import Plan, make_skeleton

_SHOWN = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt", "etc", "nix", "gnu")
_SHOWN_BELOW_VAR = ("var/lib/dpkg", "var/lib/rpm")
_COPIED_BELOW_VAR = tuple(f"/var/lib/{name}" for name in ("apt/extended_states", "pam", "python", "ucf", "xml-core"))
_SEARCHED_FOR_SECRETS = {"etc": 6, "opt": 2}
_PSEUDO = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "mqueue", "autofs", "tmpfs"})
_DPKG = Path("/var/lib/dpkg")
_DPKG_LOCKS = ("lock", "lock-frontend", "triggers/Lock")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Base:
    """Lower layers of a sandbox, by where they are mounted.

    `points` maps a mount target ("/", "/usr") to the directory below it; `skeleton` lies over all of them. `binds` are
    read-only (source, target) pairs; `path` is the PATH inside.
    """

    identity: str
    skeleton: Path
    points: dict[str, str]
    binds: tuple[tuple[str, str], ...] = ()
    path: str = DEFAULT_PATH


def is_mapped() -> bool:
    """Whether a sandbox needs a user namespace, which shows only one user inside: not for root with its rights."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return os.geteuid() != 0 or not effective >> 21 & 1


def host_base(where: Places) -> Base:
    """The host's own programs as a base. Cheap after the first call of a process."""
    return _host_base(where, is_mapped())


@lru_cache(maxsize=8)
def _host_base(where: Places, mapped: bool) -> Base:
    private = {str(where.cache.resolve()), str(where.scratch.resolve())}
    survey = _Survey(private, _mounts(), Plan(mapped=mapped))
    for name in (*_SHOWN, *_SHOWN_BELOW_VAR):
        survey.show(f"/{name}")
    plan = survey.plan
    plan.copied += [path for path in _COPIED_BELOW_VAR if Path(path).exists()]
    for name, depth in _SEARCHED_FOR_SECRETS.items():
        plan.masked += _not_for_everyone(Path("/", name), depth)
    if mapped and _DPKG.is_dir():  # an ordinary user can neither write nor link another's files: make them its own
        plan.copied += [str(path) for path in sorted(_DPKG.iterdir()) if path.is_file()]
        plan.masked += [str(_DPKG / name) for name in _DPKG_LOCKS]
    binds: tuple[tuple[str, str], ...] = ()
    path = DEFAULT_PATH
    if not any(Path(folder, "python3").exists() for folder in DEFAULT_PATH.split(":")):
        binds = ((sys.base_prefix, sys.base_prefix),)
        path = f"{DEFAULT_PATH}:{sys.base_prefix}/bin"
    identity = _digest("host", platform.machine(), *platform.libc_ver(), _os_release(), mapped)
    skeleton = make_skeleton(where.bases, identity, plan)
    return Base(identity, skeleton, plan.points, binds, path)


def rootfs_base(where: Places, rootfs: Path) -> Base:
    """A root file system in a folder (an unpacked image) as a base."""
    if not (rootfs / "bin").exists():
        raise SandboxError(f"{rootfs} is not a root file system: it has no bin folder; unpack an image there first")
    real = rootfs.resolve()
    info = real.stat()
    identity = _digest("rootfs", real, info.st_dev, info.st_ino, info.st_mtime_ns)
    skeleton = make_skeleton(where.bases, identity, Plan(mapped=is_mapped(), rootfs=True))
    return Base(identity, skeleton, {"/": str(real)})


@dataclass(slots=True)
class _Survey:
    """Decides, path by path, how the host is shown."""

    private: set[str]
    mounts: dict[str, str]
    plan: Plan

    def show(self, path: str) -> None:
        """Mount `path`, or, where something private or another mount lies below it, its children one by one."""
        host = Path(path)
        if path in self.private or self.mounts.get(path) in _PSEUDO:
            return
        if host.is_symlink():
            self.plan.links[path] = str(host.readlink())
        elif host.is_file():
            self.plan.copied.append(path)
        elif not host.is_dir() or not os.access(path, os.R_OK | os.X_OK):
            return
        elif path == "/etc" and self.plan.mapped:
            self.plan.copied.append(path)
        elif any(other.startswith(f"{path}/") for other in (*self.private, *self.mounts)):
            for child in sorted(host.iterdir()):
                self.show(str(child))
        else:
            self.plan.points[path] = path


def _mounts() -> dict[str, str]:
    """Mount points of this process and their file system types."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mounted, _, source = line.partition(" - ")
        path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mounted.split()[4])
        if path != "/":
            found[path] = source.split()[0]
    return found


def _not_for_everyone(folder: Path, depth: int) -> list[str]:
    """Files and folders below `folder` that others may not read."""
    found: list[str] = []
    if not folder.is_dir():
        return found
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            is_folder = entry.is_dir(follow_symlinks=False)
            if not mode & 0o004 or (is_folder and not mode & 0o001):
                found.append(entry.path)
            elif is_folder and depth > 1:
                found += _not_for_everyone(Path(entry.path), depth - 1)
    return sorted(found)


def _os_release() -> str:
    path = Path("/etc/os-release")
    return path.read_text(encoding="utf-8") if path.exists() else platform.platform()


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:32]
