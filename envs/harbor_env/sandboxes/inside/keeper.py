"""The process outside a sandbox that starts process 1 and clears up after it, whatever became of the owner.

Invariant: when the keeper has ended, so have all processes of its sandbox, and its cgroups and scratch folder are gone.
It acts when its standard input closes (the owner stopped, crashed or was killed) or process 1 ends.
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
import sys
import time
from typing import Any, NoReturn

from . import init
from . import syscalls as sys_

_CGROUP_TRIES, _CGROUP_PAUSE_S = 50, 0.01


def main() -> None:
    """Arguments: path of the spec, descriptor of the control socket. Other inherited descriptors are held, not used."""
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    owner = os.getppid()
    control = socket.socket(fileno=int(sys.argv[2]))
    wake = _watch_owner()
    try:
        status = _keep(spec, control, owner, wake)
    finally:
        _clear(spec)
    sys.exit(status)


def _watch_owner() -> int:
    """SIGTERM arrives when the thread that started the keeper ends; only the process counts, so it is checked."""
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    sys_.die_with_parent(signal.SIGTERM)
    return wake_read


def _keep(spec: dict[str, Any], control: socket.socket, owner: int, wake: int) -> int:
    try:
        cgroups = [os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in spec["cgroups"]]
        if spec["mapped"]:
            enter_user_namespace()
        os.unshare(os.CLONE_NEWPID)
        pid = os.fork()
    except OSError as error:
        control.send(json.dumps({"failed": str(error)}).encode())
        return 1
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(0)
        os.open("/dev/null", os.O_RDWR)
        init.main(spec, control, cgroups)
    control.close()
    _wait(pid, owner, wake)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return 0 if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


def _wait(pid: int, owner: int, wake: int) -> None:
    poll = select.poll()
    process = os.pidfd_open(pid)
    for fd in (0, process, wake):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
        if ready & {0, process} or os.getppid() != owner:
            os.close(process)
            return


def enter_user_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    os.unshare(os.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _clear(spec: dict[str, Any]) -> None:
    for path in spec["cgroups"]:
        _remove_cgroup(path)
    if not spec["keep"]:
        _become_rm(spec["folder"])


def _become_rm(path: str) -> NoReturn:
    """rm(1) copes with trees deeper than a path may be long, which an agent can make.

    The keeper turns into it because it can start no process any more: its process namespace ended with process 1.
    """
    sys_.die_with_parent(0)
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
