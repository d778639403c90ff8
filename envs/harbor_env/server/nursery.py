"""A small process that has imported what rollouts need, and forks a worker each time it is asked: `python -m` this.

Invariant: one thread, so forking is safe; it ends when the server does. Importing Harbor takes seconds, a fork
milliseconds.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys

SOCKET = 3
"""The descriptor on which a request, one byte with a worker's end of a socket pair, arrives."""


def main() -> None:
    import harbor.trial.single_step
    import harbor.trial.sync_trajectory  # noqa: F401

    from harbor_env import trial  # noqa: F401
    from harbor_env.harnesses import adapters, baking  # noqa: F401
    from harbor_env.sandboxes import build, local  # noqa: F401
    from harbor_env.server import worker

    asked = socket.socket(fileno=SOCKET)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers leave no zombies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        said, fds, _, _ = socket.recv_fds(asked, 1, 1)
        if not said:
            return
        if os.fork() == 0:
            asked.close()
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            worker.main(socket.socket(fileno=fds[0]))
        os.close(fds[0])


if __name__ == "__main__":
    main()
    sys.exit(0)
