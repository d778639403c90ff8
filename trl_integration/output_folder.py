"""The folder a training run writes to: one run at a time, and none over another's results."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from harbor_env.errors import UsageError
from harbor_env.whole_file import write_whole

LOG, ROLLOUTS, SETTINGS = "log.jsonl", "rollouts.jsonl", "settings.json"


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
    return sorted(filter(_whole, found), key=_step)


def begin(folder: Path, *, resume: bool) -> str | None:
    """The checkpoint to go on from. What was logged behind it is put aside, for its steps and groups come again; all of
    it where there is none.

    UsageError: to go on there is no checkpoint, or to begin there are some.
    """
    whole = checkpoints(folder)
    if resume and not whole:
        raise UsageError(f"{folder} has no whole checkpoint to go on from: leave --resume out to begin.")
    if whole and not resume:
        raise UsageError(f"{folder} has checkpoints of an earlier run: give --resume to go on, or another output_dir.")
    checkpoint = whole[-1] if resume else None
    _put_aside(folder / LOG, "step", _step(checkpoint) + 1 if checkpoint else 0)
    _put_aside(folder / ROLLOUTS, "group", _next_group(checkpoint) if checkpoint else 0)
    return str(checkpoint) if checkpoint else None


def refuse_other_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """UsageError: the run in the folder began with others. One whose settings nobody wrote down is not refused."""
    path = folder / SETTINGS
    began = json.loads(path.read_bytes()) if path.exists() else None
    if began is None:
        return
    given = json.loads(json.dumps(settings))
    other = [f"{key} {began.get(key)!r}, now {value!r}" for key, value in given.items() if began.get(key) != value]
    if other:
        raise UsageError(
            f"{folder} began with other settings: {'; '.join(other)}. Give them as they were, or begin anew in "
            "another output_dir."
        )


def keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write down what makes a run the run it is."""
    write_whole(folder / SETTINGS, [json.dumps(settings, indent=1).encode()])


def _put_aside(path: Path, key: str, end: int) -> None:
    """Leave the lines whose `key` is below `end`; the others, and what was cut short, go to a file beside it."""
    lines = [line + b"\n" for line in path.read_bytes().splitlines()] if path.exists() else []
    stands = [_below(line, key, end) for line in lines]
    if all(stands):
        return
    places = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    aside = next(place for place in places if not place.exists())
    write_whole(aside, itertools.compress(lines, (not stand for stand in stands)))
    if any(stands):
        write_whole(path, itertools.compress(lines, stands))
    else:
        path.unlink()


def _below(line: bytes, key: str, end: int) -> bool:
    try:
        value = json.loads(line)[key]
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(value, int) and value < end


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _next_group(checkpoint: Path) -> int:
    """The group that whoever goes on from the checkpoint begins with."""
    return int(json.loads((checkpoint / "rollout_state.json").read_bytes()).get("prompt_index", 0))


def _whole(checkpoint: Path) -> bool:
    """The trainer's state is what is written last."""
    if (checkpoint / "checkpoint-is-incomplete.txt").exists():
        return False
    try:
        return all(json.loads((checkpoint / f"{name}_state.json").read_bytes()) for name in ("trainer", "rollout"))
    except (OSError, ValueError):
        return False
