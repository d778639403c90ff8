"""What runs and what is left on this machine: processes by the part they play, folders, mounts and cgroups.

Invariant: no descendant can escape being seen, because this process is the reaper of all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
CGROUPS = Path("/sys/fs/cgroup")
PARTS = ("server", "worker", "nursery", "sandbox", "gateway", "engine", "client", "harness")


def become_reaper() -> None:
    """From here on a descendant whose parent dies becomes a child of this process, not of the machine's first."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def victims(part: str, server: int) -> list[psutil.Process]:
    """The processes that play a part of a server now. Workers whose nursery died have become this process's own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(server)
        if part == "server":
            return [top]
        if part in ("gateway", "nursery"):
            word = {"gateway": "harbor_env.gateway.serve", "nursery": "server.nursery"}[part]
            return [child for child in top.children() if word in " ".join(child.cmdline())]
        starters = [below for below in psutil.Process().children(recursive=True) if _is_starter(below)]
        if part == "worker":
            parents = [starter.parent() for starter in starters if starter.children()]
            return [worker for worker in parents if worker and worker != top]  # the server's own are fork servers'
        keepers = [keeper for starter in starters for keeper in starter.children()]
        inits = [init for keeper in keepers for init in keeper.children()]
        return inits + keepers if part == "sandbox" else [command for init in inits for command in _commands(init)]
    return []


def _is_starter(process: psutil.Process) -> bool:
    parent = process.parent()
    told = " ".join(process.cmdline())
    return "inside.starter" in told and parent is not None and "inside.starter" not in " ".join(parent.cmdline())


def _commands(init: psutil.Process) -> list[psutil.Process]:
    return [below for below in init.children(recursive=True) if "chat/completions" in " ".join(below.cmdline())]


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and all below it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; ended ones that became children of this process are reaped."""
    running = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


def reap(known: Iterable[int]) -> None:
    """Reap adopted children that have ended; `known` are those somebody else waits for."""
    for child in psutil.Process().children():
        if child.pid not in set(known):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def wait_until(true: Callable[[], bool], within: float) -> float:
    """Seconds it took. TimeoutError: longer than `within`."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > within:
            raise TimeoutError
        time.sleep(0.05)
    return time.monotonic() - began


class Sandboxes:
    """Keeps the names of all sandboxes that ever were in a scratch folder: those of their cgroups too."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.seen: set[str] = set()
        self._stop = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def close(self) -> None:
        self._stop.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            with contextlib.suppress(FileNotFoundError):
                self.seen.update(os.listdir(self.scratch))  # noqa: PTH208 - names are all that is wanted

    def left(self) -> list[str]:
        """Sandbox folders, mounts below them and cgroups that are still there."""
        folders = [str(path) for path in self.scratch.iterdir()] if self.scratch.is_dir() else []
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.scratch) in line]
        cgroups = [str(path) for path in CGROUPS.rglob("openenv-harbor-*") if path.name[15:] in self.seen]
        return [*folders, *mounts, *cgroups]
