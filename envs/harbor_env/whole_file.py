"""Files that appear whole: whoever reads one meanwhile, or after a crash, finds the old content or the new."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, content: Iterable[bytes]) -> int:
    """Put the pieces into a file that is on disk when this returns; returns how many there were. Folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    count = 0
    with part.open("wb") as file:
        for count, piece in enumerate(content, 1):  # noqa: B007 - the last number is the count
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())  # a result that is on disk must not outlive the files it names
    part.replace(path)
    return count
