"""Builds the root a sandbox sees, from overlays over read-only layers, and moves into it.

Runs as process 1 of the sandbox in a mount namespace of its own, so every mount made here ends with that process.
"""

# pathlib is an import this program does not pay for.
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH114, PTH120, PTH211

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import Any

from . import network
from . import syscalls as sys_

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_READONLY_PROC = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_HIDDEN_PROC = ("acpi", "kcore", "keys", "kmsg", "latency_stats", "timer_list", "sched_debug", "scsi")


def build(spec: dict[str, Any]) -> tuple[int, list[str]]:
    """Mount everything `spec` asks for and make it this process's root.

    Returns a descriptor of the isolated network namespace and notes on what could not be had.
    """
    os.unshare(os.CLONE_NEWNS | os.CLONE_NEWUTS | os.CLONE_NEWIPC | os.CLONE_NEWCGROUP)
    sys_.mount("none", "/", "", sys_.MS_REC | sys_.MS_PRIVATE)
    root = spec["root"]
    for point in spec["points"]:
        _overlay(root, point)
    notes = _devices(f"{root}/dev")
    trees = [*_written(f"{root}/dev", spec["files"]), *((_tree(bind), bind["target"]) for bind in spec["binds"])]
    _proc(f"{root}/proc")
    namespace, has_sys = network.isolated(root)
    if not has_sys:
        notes.append("no /sys inside")
    os.chdir(root)
    sys_.pivot_root(".", ".")
    sys_.unmount(".")
    os.chdir("/")
    for tree, target in trees:
        _attach(tree, target)
    _guard_proc()
    _sethostname(spec["hostname"])
    return namespace, notes


def _overlay(root: str, point: dict[str, Any]) -> None:
    target = root if point["target"] == "/" else root + point["target"]
    if os.path.islink(target):
        raise OSError(f"a layer replaced {point['target']} by a symbolic link")
    lower = ":".join(_escape(path) for path in point["lower"])
    data = f"lowerdir={lower},upperdir={_escape(point['upper'])},workdir={_escape(point['work'])}"
    sys_.mount("overlay", target, "overlay", sys_.MS_NODEV, f"{data},userxattr,volatile,index=off,xino=off")


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _devices(dev: str) -> list[str]:
    sys_.mount("tmpfs", dev, "tmpfs", sys_.MS_NOSUID, "mode=755,size=1m")
    for name in _DEVICES:
        os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        sys_.bind(f"/dev/{name}", f"{dev}/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    for name in ("shm", "pts", "mqueue"):
        os.mkdir(f"{dev}/{name}")
    sys_.mount("tmpfs", f"{dev}/shm", "tmpfs", sys_.MS_NOSUID | sys_.MS_NODEV, "mode=1777")
    notes = []
    try:
        sys_.mount("devpts", f"{dev}/pts", "devpts", sys_.MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")
        os.symlink("pts/ptmx", f"{dev}/ptmx")
    except OSError as error:
        notes.append(f"no terminals inside: {error.strerror}")
    return notes


def _proc(target: str) -> None:
    try:
        sys_.mount("proc", target, "proc", sys_.MS_NOSUID | sys_.MS_NODEV | sys_.MS_NOEXEC)
    except PermissionError as error:
        error.strerror = f"{error.strerror} (an outer container masks parts of /proc)"
        raise


def _written(dev: str, files: dict[str, str]) -> list[tuple[int, str]]:
    """Files with the given texts, kept in memory, as trees to attach at their paths."""
    os.mkdir(f"{dev}/.files", 0o700)
    trees = []
    for number, (path, text) in enumerate(files.items()):
        file = f"{dev}/.files/{number}"
        fd = os.open(file, os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(fd, text.encode())
        os.close(fd)
        trees.append((sys_.clone_mount(file), path))
    return trees


def _tree(bind: dict[str, Any]) -> int:
    tree = sys_.clone_mount(bind["source"])
    if bind["readonly"]:
        sys_.make_readonly(tree)
    return tree


def _attach(tree: int, target: str) -> None:
    """Attach at `target`, making it first; links inside the sandbox resolve inside the sandbox by now."""
    directory = stat.S_ISDIR(os.fstat(tree).st_mode)
    parent = target if directory else os.path.dirname(target)
    os.makedirs(parent, exist_ok=True)
    if not directory and not os.path.lexists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    sys_.attach_mount(tree, target)
    os.close(tree)


def _guard_proc() -> None:
    """Real root may write kernel settings through /proc, whatever its capabilities: make those parts read-only."""
    for name in _READONLY_PROC:
        if os.path.exists(f"/proc/{name}"):
            sys_.bind(f"/proc/{name}", f"/proc/{name}", readonly=True)
    for name in _HIDDEN_PROC:
        with contextlib.suppress(FileNotFoundError):
            hide(f"/proc/{name}")


def hide(path: str) -> None:
    """Cover a file with /dev/null or a directory with an empty read-only one."""
    if os.path.isdir(path):
        sys_.mount("tmpfs", path, "tmpfs", sys_.MS_RDONLY | sys_.MS_NOSUID | sys_.MS_NODEV, "size=0")
    else:
        sys_.bind("/dev/null", path)


def _sethostname(name: str) -> None:
    socket.sethostname(name)
