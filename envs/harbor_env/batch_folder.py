"""A batch's folder belongs to one batch: its settings stand in `batch.json`, and one process at a time writes there.

Invariant: results made with other settings never come together in one folder unless somebody said so; what they were is
kept in either case.
"""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from harbor_env.capture import read_json
from harbor_env.errors import UsageError
from harbor_env.records import RESULTS
from harbor_env.whole_file import write_whole

SETTINGS = "batch.json"
LOCK = ".lock"
UNLOCKABLE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems without locks answer, as some of clusters are; there, two batches in one folder are not noticed."""

Settings = Mapping[str, Any]
"""What makes results comparable, by the name of its flag: JSON values; None is not known and differs from nothing."""


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Hold the folder, made if need be, for as long as the block lasts. UsageError: another process writes there."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"Another batch is running in {out}: wait for it, or give another --out.") from None
        except OSError as error:
            if error.errno not in UNLOCKABLE:
                raise
        yield


def agree(out: Path, settings: Settings, *, anyway: bool = False) -> None:
    """Write down what the batch is run with. UsageError where results made otherwise lie there, unless `anyway`."""
    document = read_json(out / SETTINGS) or {}
    before: Settings = document.get("settings") or {}
    found = differences(before, settings) if (out / RESULTS).is_file() else []
    if found and not anyway:
        lines = "\n".join(f"  {line}" for line in found)
        raise UsageError(
            f"{out} holds a batch with other settings:\n{lines}\n"
            "Give another --out, the settings of then, or --resume-anyway to put both into one folder."
        )
    earlier = [*document.get("earlier", ()), *([before] if found else ())]
    known = {**before, **{name: value for name, value in settings.items() if value is not None or name not in before}}
    written = {"settings": known, "earlier": earlier}
    write_whole(out / SETTINGS, [orjson.dumps(written, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)])


def differences(before: Settings, now: Settings) -> list[str]:
    """A line for each setting that was another."""
    return [
        f"--{name.replace('_', '-')}: {_said(before[name])} then, {_said(value)} now"
        for name, value in now.items()
        if name in before and None not in (value, before[name]) and value != before[name]
    ]


def _said(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "none" if value == "" else str(value)
