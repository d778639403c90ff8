"""A small process that has imported what rollouts need, and forks a worker each time it is asked.

Invariant: one thread, so forking is safe; it ends when the server does. Importing Harbor takes seconds, and so does
what some adapters need; a fork takes milliseconds.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys

NAME = 256
"""Bytes of a module's name, at most."""


def main(requests: int, asking: int) -> None:
    """Descriptors: requests arrive on one, the name of a module to import before forking and a worker's end of a socket
    pair; all workers ask on the other for fork servers.
    """
    asked, lenders = (_own(fd) for fd in (requests, asking))
    import harbor.trial.single_step
    import harbor.trial.sync_trajectory  # noqa: F401

    from harbor_env import trial  # noqa: F401
    from harbor_env.harnesses import adapters, baking  # noqa: F401
    from harbor_env.sandboxes import build, local  # noqa: F401
    from harbor_env.server import worker

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers leave no zombies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _settle()
    while True:
        said, fds, _, _ = socket.recv_fds(asked, NAME, 1)
        if not said:
            return
        if said.decode() not in sys.modules:
            importlib.import_module(said.decode())
            _settle()
        if os.fork() == 0:
            asked.close()
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            worker.main(socket.socket(fileno=fds[0]), lenders)
        os.close(fds[0])


def _own(fd: int) -> socket.socket:
    """A descriptor that was handed to this process and is for no program it or a worker starts."""
    os.set_inheritable(fd, False)
    return socket.socket(fileno=fd)


def _settle() -> None:
    """The collector writes to no page of what is here any more, so that forks go on sharing it."""
    gc.collect()
    gc.freeze()
