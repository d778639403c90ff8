"""A worker's process ends when its trainer does, however that ended: nobody else reads what it makes. On Linux."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import parent_process

from harbor_env.gateway.process import die_with_parent


def end_with_parent(parent: int | None = None) -> None:
    """Ask for SIGTERM at the parent's end, and end at once where it has ended already.

    `parent` is its process id; without one, that of the process which multiprocessing started this from.
    """
    if sys.platform != "linux":
        return
    die_with_parent()
    started_by = parent_process()
    expected = parent or (started_by.pid if started_by else None)
    # A parent that ended before the call sends nothing; this process is another's child by now.
    if expected is not None and os.getppid() != expected:
        signal.raise_signal(signal.SIGTERM)
