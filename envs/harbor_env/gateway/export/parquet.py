"""Rows of many sessions as one Parquet file, for the command line: this is the only format that writes to disk.

Its columns are those of the JSON lines; a session's metadata, whose shape is the user's, is JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from harbor_env.gateway.export.rows import record, rows
from harbor_env.gateway.export.session_export import SessionExport


def write_parquet(sessions: Iterable[SessionExport], path: Path) -> int:
    """Write the rows of `sessions` to `path`; returns how many rows. Needs `datasets`. ValueError: there are none."""
    from datasets import Dataset, disable_progress_bars  # heavy, and only the command line comes here

    records = list(_records(sessions))
    if not records:
        raise ValueError("there is no row to write")
    disable_progress_bars()  # they would stand before the one line that the command prints
    Dataset.from_list(records).to_parquet(str(path))
    return len(records)


def _records(sessions: Iterable[SessionExport]) -> Iterator[dict[str, Any]]:
    for session in sessions:
        metadata = orjson.dumps(dict(session.metadata)).decode()
        for index, row in enumerate(rows(session)):
            yield {**record(session, index, row), "metadata": metadata}
