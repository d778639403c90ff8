"""The folder a training run writes to: one run at a time, and none over another's results."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import re
from pathlib import Path
from typing import IO

from harbor_env.errors import UsageError
from harbor_env.whole_file import write_whole
from trl_integration.line_files import read_lines

LOG, ROLLOUTS = "log.jsonl", "rollouts.jsonl"


def held(folder: Path) -> IO[bytes]:
    """The folder, made if need be, as this run's own until what is returned is closed. UsageError: it is another's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("wb")
    except OSError as error:
        raise UsageError(f"output_dir: {error}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            lock.close()
            raise UsageError(f"Another training run writes to {folder}: end it, or give another output_dir.") from None
        # A network file system without locks cannot tell.
    return lock


def checkpoints(folder: Path) -> list[Path]:
    """Those that were saved whole, in their order. From one that a run was ended in, nothing can go on."""
    found = [path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(filter(_whole, found), key=lambda path: int(path.name.rpartition("-")[2]))


def begin(folder: Path, *, resume: bool) -> str | None:
    """The checkpoint to go on from. What an earlier run logged behind it is put aside, all of it where there is none.

    UsageError: to go on there is no checkpoint, or to begin there are some.
    """
    whole = checkpoints(folder)
    if resume and not whole:
        raise UsageError(f"{folder} has no whole checkpoint to go on from: leave --resume out to begin.")
    if whole and not resume:
        raise UsageError(f"{folder} has checkpoints of an earlier run: give --resume to go on, or another output_dir.")
    if resume:
        return str(whole[-1])
    for name in (LOG, ROLLOUTS):
        if (folder / name).exists():
            (folder / name).rename(_free(folder, name))
    return None


def cut(log: Path, step: int) -> None:
    """Take the lines of later steps out of a log: a run that goes on makes those steps again."""
    if log.exists():
        kept = [line for line in read_lines(log) if line["step"] <= step]
        write_whole(log, (json.dumps(line).encode() + b"\n" for line in kept))


def _free(folder: Path, name: str) -> Path:
    places = (folder / f"{name}.{number}" for number in itertools.count(1))
    return next(place for place in places if not place.exists())


def _whole(checkpoint: Path) -> bool:
    """The trainer's state is what is written last."""
    if (checkpoint / "checkpoint-is-incomplete.txt").exists():
        return False
    try:
        return all(json.loads((checkpoint / f"{name}_state.json").read_bytes()) for name in ("trainer", "rollout"))
    except (OSError, ValueError):
        return False
