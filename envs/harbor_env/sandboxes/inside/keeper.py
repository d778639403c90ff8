"""The process outside a sandbox that starts process 1 and clears up after it, whatever became of the owner.

Invariant: when the keeper has ended, so have all processes of its sandbox, and its cgroups and scratch folder are gone.
It acts when its life line closes (the owner stopped it), the owner ends in any way, or process 1 ends.
"""

# pathlib is an import this program does not pay for.
# ruff: noqa: PTH106, PTH123

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from . import init
from . import syscalls as sys_

CONTROL, LIFE, DONE, LOCK, LOG, USER = range(6)
"""Places of the descriptors a keeper is given: the control socket; the life line, whose other end the owner holds; a
pipe held until all but the scratch folder is gone; a lock held until that is gone too; where to write of failures; and,
where a fork server is to serve the sandbox, the user namespace they share."""

_CGROUP_TRIES, _CGROUP_PAUSE_S = 50, 0.01


def main(folder: str, fds: list[int], owner: int) -> NoReturn:
    """Keep the sandbox in `folder`; `owner` is a descriptor of the owner's process."""
    os.setsid()
    os.dup2(fds[LOG], 2)
    with open(f"{folder}/lock", encoding="utf-8") as file:
        spec = json.load(file)
    try:
        _keep(spec, fds, owner)
    finally:
        _clear(spec, fds)
        os._exit(0)


def _keep(spec: dict[str, Any], fds: list[int], owner: int) -> None:
    control = socket.socket(fileno=fds[CONTROL])
    try:
        cgroups = [os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in spec["cgroups"]]
        if spec["mapped"]:
            enter_user_namespace(*fds[USER:])
        os.unshare(os.CLONE_NEWPID)
        pid = os.fork()
    except OSError as error:
        control.send(json.dumps({"failed": sys_.explain(error)}).encode())
        return
    if pid == 0:
        for fd in (fds[LIFE], fds[DONE], fds[LOCK], owner):
            os.close(fd)
        init.main(spec, control, cgroups)
    control.close()
    _wait(pid, fds[LIFE], owner)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _wait(pid: int, life: int, owner: int) -> None:
    process = os.pidfd_open(pid)
    poll = select.poll()
    for fd in (life, process, owner):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    poll.poll()
    os.close(process)


def enter_user_namespace(shared: int | None = None) -> None:
    if shared is not None:
        os.setns(shared, os.CLONE_NEWUSER)
        os.close(shared)
        return
    uid, gid = os.getuid(), os.getgid()
    os.unshare(os.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _clear(spec: dict[str, Any], fds: list[int]) -> None:
    for path in spec["cgroups"]:
        _remove_cgroup(path)
    if not spec["keep"]:
        _become_rm(spec["folder"], fds[LOCK])


def _become_rm(path: str, lock: int) -> NoReturn:
    """rm(1) copes with trees deeper than a path may be long, which an agent can make.

    The keeper turns into it because it can start no process any more: its process namespace ended with process 1.
    """
    os.set_inheritable(lock, True)
    os.execvpe("rm", ["rm", "-rf", "--", path], {"PATH": os.defpath})


def _remove_cgroup(path: str) -> None:
    """A cgroup stays busy for an instant after its last process has been reaped."""
    for _ in range(_CGROUP_TRIES):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(_CGROUP_PAUSE_S)
        else:
            return
