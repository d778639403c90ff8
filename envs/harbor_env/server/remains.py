"""The files rollouts leave below a server's data folder: kept where asked, else removed, also for a process that died.

Invariant: what was not ended by its own process is removed, never kept, for nobody took its session's key out of it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

from harbor_env.rollout import RolloutSpec
from harbor_env.scrub import scrub_folder

ROLLOUTS, KEPT = "rollouts", "kept"
WRITTEN = ("trace.json", "rows.jsonl")
CLEARED_WITHIN = 5.0
"""Seconds in which the sandbox of a dead process stops writing."""


def claim(rollouts: Path) -> int | None:
    """Empty the folder of what a server before this one left; the descriptor holds it until it is closed.

    None where another server runs in it: all that is there may be its own.
    """
    rollouts.mkdir(parents=True, exist_ok=True)
    held = os.open(rollouts / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return None
    for name in ("logs", "traces"):
        shutil.rmtree(rollouts / name, ignore_errors=True)
    return held


def settle(spec: RolloutSpec, keep: bool) -> None:
    """After a rollout's end, in its own process: move its files to `kept` beside the rollouts, or remove them."""
    if not keep:
        _remove(spec)
        return
    kept = spec.out.parent / KEPT / spec.name
    kept.mkdir(parents=True, exist_ok=True)
    for path in (spec.out / "logs" / spec.name, *_captured(spec)):
        if path.exists():
            shutil.move(path, kept / ("logs" if path.is_dir() else path.name.removeprefix(f"{spec.name}.")))


def last_words(spec: RolloutSpec, secrets: tuple[str, ...]) -> None:
    """Make the logs of a rollout whose process died fit to be read."""
    logs = spec.out / "logs" / spec.name
    if logs.is_dir():
        scrub_folder(logs, secrets)


def clear(spec: RolloutSpec) -> None:
    """Remove the files of a rollout whose process died; its sandbox may still write for an instant."""
    until = time.monotonic() + CLEARED_WITHIN
    _remove(spec)
    while (spec.out / "logs" / spec.name).exists() and time.monotonic() < until:
        time.sleep(0.05)
        _remove(spec)


def _remove(spec: RolloutSpec) -> None:
    shutil.rmtree(spec.out / "logs" / spec.name, ignore_errors=True)
    for path in _captured(spec):
        path.unlink(missing_ok=True)


def _captured(spec: RolloutSpec) -> list[Path]:
    return [spec.out / "traces" / f"{spec.name}.{ending}" for ending in WRITTEN]
