"""Stands in a sandbox for a harness's command: has the fork server start it, or starts it cold.

Invariant: the command runs exactly once, and this process ends as it ended. What is in capitals is filled in.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import NoReturn

DOOR, COLD = "@DOOR@", "@COLD@"
PATIENCE_S = 20.0
"""For an answer that says whether the command has been started."""
_PACKET = 65536
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_LOST = 137


def main() -> None:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.connect(DOOR)
        pid = _ask(server)
    except OSError:  # the server is not there: nothing is lost but time
        pid = 0
    if pid:
        _attend(server, pid)
    os.execv(COLD, [COLD, *sys.argv[1:]])


def _ask(server: socket.socket) -> int:
    """The process id of the command, 0 where it has not been started and never will be."""
    request = {"argv": sys.argv, "env": dict(os.environ), "umask": _umask()}
    fds = [os.memfd_create("request"), 0, 1, 2]
    os.write(fds[0], json.dumps(request).encode())
    fds += [os.open(".", os.O_PATH | os.O_DIRECTORY), os.open("/proc/self/ns/net", os.O_RDONLY)]
    socket.send_fds(server, [b"start"], fds)
    for fd in (fds[0], *fds[4:]):
        os.close(fd)
    server.settimeout(PATIENCE_S)
    try:
        answer = server.recv(_PACKET)
    except TimeoutError:
        server.shutdown(socket.SHUT_RD)  # from here on the server cannot start it; it may just have done so
        answer = server.recv(_PACKET)
    server.settimeout(None)
    return int(json.loads(answer or b"{}").get("started", 0))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _attend(server: socket.socket, pid: int) -> NoReturn:
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: os.kill(pid, number))
    try:
        ended = json.loads(server.recv(_PACKET) or b"{}")
    except OSError:
        ended = {}
    number = ended.get("signal", 0)
    if number:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(ended.get("code", _LOST))


if __name__ == "__main__":
    main()
