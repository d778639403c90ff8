"""Starts keepers by forking, so that one more sandbox does not cost one more start of Python.

Invariant: it ends when its owner does. Keepers watch the owner themselves and do not depend on this process.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

from . import keeper
from . import syscalls as sys_

_PACKET, _DESCRIPTORS = 65536, 8


def main() -> None:
    """Arguments: descriptor of the socket requests come from, process id of the owner.

    A request is a sandbox's scratch folder, with the descriptors that `keeper.main` takes.
    """
    requests, owner = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    os.closerange(requests.fileno() + 1, 1 << 30)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 is deaf to what has no handler; Python gives this one one
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    watch = os.pidfd_open(owner)
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    poll.register(watch, select.POLLIN)
    while os.getppid() == owner and watch not in {fd for fd, _ in poll.poll()}:
        folder, fds, _, _ = socket.recv_fds(requests, _PACKET, _DESCRIPTORS)
        if not folder:
            return
        _fork(folder.decode(), fds, watch, requests)


def _fork(folder: str, fds: list[int], watch: int, requests: socket.socket) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        os.write(fds[keeper.LOG], f"no process for a sandbox: {sys_.explain(error)}\n".encode())
        pid = -1
    if pid == 0:
        requests.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        keeper.main(folder, fds, watch)
    for fd in fds:
        os.close(fd)
