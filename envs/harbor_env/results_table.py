"""`results.parquet`: one row per rollout, with flat, typed columns, for `datasets`, pandas or DuckDB.

Invariant: the columns and their types are the same for every batch; what is unknown is null, and a reward that was not
earned is null, never zero. Mappings whose keys a task or a harness chooses are JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson

from harbor_env.outcome import RolloutResult
from harbor_env.whole_file import write_whole

TABLE = "results.parquet"
TEXT = ("name", "task", "harness", "sandbox", "model", "level", "session", "trace", "rows", "log_tail")
SECONDS = ("total", "sandbox", "setup", "agent", "verifier")
COUNTS = ("turns", "roots", "leaves", "rows", "discarded", "tool_calls", "sampled_tokens", "trainable_tokens")


def write_table(out: Path, results: Iterable[RolloutResult]) -> int:
    """Write the table into the batch's folder; returns how many rows. A reader sees the old file or the new one."""
    # The library `datasets` reads and writes Parquet with; importing all of that takes seconds. Rows are read from JSON
    # because arrow looks for pandas among Python objects, which takes seconds more, at the end of an interrupted batch.
    import pyarrow as arrow
    from pyarrow import json, parquet

    text, flag, number, count = arrow.string(), arrow.bool_(), arrow.float64(), arrow.int64()
    types = dict.fromkeys(TEXT, text)
    types |= {"ok": flag, "reward": number, "rewards": text, "reason": text, "sentence": text}
    types |= dict.fromkeys(("flags", "planted", "earlier"), arrow.list_(text))
    types |= {"tries": count, "findings": text, "atif": text, "atif_detail": text}
    types |= {f"{name}_seconds": number for name in SECONDS} | {_counted(name): count for name in COUNTS}
    records = [record(result) for result in results]
    schema, table = arrow.schema(types), None
    if records:
        lines = b"".join(orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE) for values in records)
        strict = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        whole = json.ReadOptions(block_size=len(lines))
        table = json.read_json(arrow.BufferReader(lines), read_options=whole, parse_options=strict)
    written = BytesIO()
    parquet.write_table(schema.empty_table() if table is None else table, written)
    write_whole(out / TABLE, [written.getvalue()])
    return len(records)


def record(result: RolloutResult) -> dict[str, Any]:
    """One rollout as the columns of the table."""
    values = {name: getattr(result, name) for name in (*TEXT, "ok", "reward", "flags", "planted", "tries")}
    reason = result.reason
    return {
        **values,
        "rewards": _json(result.rewards),
        "reason": reason.kind if reason else None,
        "sentence": reason.sentence if reason else None,
        "earlier": [f"{failure.kind}: {failure.sentence}" for failure in result.earlier],
        "findings": _json(result.findings),
        "atif": result.atif.status,
        "atif_detail": result.atif.detail,
        **{f"{name}_seconds": result.seconds.get(name) for name in SECONDS},
        **{_counted(name): result.counts.get(name) for name in COUNTS},
    }


def _counted(name: str) -> str:
    """`rows` is the file's column already."""
    return "training_rows" if name == "rows" else name


def _json(mapping: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(mapping)).decode()
