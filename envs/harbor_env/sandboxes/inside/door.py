"""What a sandbox gives to whoever may start processes in it from outside: a door, and the way to its namespaces."""

# pathlib is an import this program does not pay for.
# ruff: noqa: PTH101

from __future__ import annotations

import array
import contextlib
import json
import os
import socket

from . import syscalls as sys_

NAMESPACES = ("user", "pid", "mnt", "uts", "ipc", "cgroup")
"""Descriptors of a door after its listener, its life and its isolated network, in this order."""
_BACKLOG = 64


def send_door(path: str, network: int, out: socket.socket) -> None:
    """Listen at `path`, open to every user inside, and pass what `Door` of the owner names over `out`."""
    fds: list[int] = []
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            os.chmod(path, 0o666)
            listener.listen(_BACKLOG)
            fds += [os.pidfd_open(os.getpid()), os.dup(network)]
            for name in NAMESPACES:
                fds.append(os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC))
            given = array.array("i", [listener.fileno(), *fds])
            out.sendmsg([b'{"door": true}'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)])
    except OSError as error:
        out.send(json.dumps({"door": False, "error": sys_.explain(error)}).encode())
    finally:
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)
