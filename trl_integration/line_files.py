"""Files of JSON lines that a run appends to and a crash may cut short."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def append_lines(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    """Add a line for each. A line that was cut short is ended first, or it would take the next one with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            file.write(b"" if file.read(1) == b"\n" else b"\n")
        for document in documents:
            file.write(json.dumps(document).encode() + b"\n")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file; a line that was cut short is passed over."""
    for line in path.read_bytes().splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            yield document
