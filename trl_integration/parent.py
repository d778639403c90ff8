"""A worker's process ends when its trainer does, however that ended: nobody else reads what it makes. On Linux."""

from __future__ import annotations

import ctypes
import signal

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h: the signal this process gets when its parent ends."""


def end_with_parent() -> None:
    """Ask for SIGTERM at the parent's end."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
