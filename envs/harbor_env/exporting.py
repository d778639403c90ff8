"""Captured sessions to a file: from a gateway's data folder, whether it runs or not, or from a running gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from harbor_env.capture import write_whole
from harbor_env.errors import UsageError
from harbor_env.gateway.export import SessionExport, find_format
from harbor_env.gateway.store import FILE_NAME, Store
from harbor_env.gateway.stored_export import stored_export
from harbor_env.gateway_client import GatewayClient

SUFFIXES = {"trace": ".json", "rows": ".jsonl", "messages": ".jsonl", "sft": ".jsonl", "safetensors": ".safetensors"}
ONE_SESSION = frozenset({"trace", "safetensors"})
"""Formats whose file is one session; the others are lines, of as many sessions as asked for."""


def export_to_file(
    *, data: Path | None, url: str, sessions: Sequence[str], export_format: str, out: Path | None, admin_key: str
) -> str:
    """Write the sessions and say what was written. UsageError for what cannot be asked for."""
    if (data is None) == (not url):
        raise UsageError("Give --data FOLDER of a gateway, or --url of a running one.")
    target = out or Path(f"export{SUFFIXES.get(export_format, '.bin')}")
    if data is not None and target.suffix == ".parquet":
        return _write_parquet(_stored(data, sessions), export_format, target)
    if target.suffix == ".parquet":
        raise UsageError("Parquet is written from a data folder: give --data instead of --url.")
    bodies = _from_store(data, sessions, export_format) if data else _from_url(url, sessions, export_format, admin_key)
    if len(bodies) > 1 and export_format in ONE_SESSION:
        raise UsageError(f"A {export_format} file holds one session and there are {len(bodies)}: give --session ID.")
    write_whole(target, b"".join(bodies))
    return f"{len(bodies)} sessions as {export_format}: {target}"


def _from_store(data: Path, sessions: Sequence[str], export_format: str) -> list[bytes]:
    encode = find_format(export_format).encode
    return [encode(export) for export in _stored(data, sessions)]


def _from_url(url: str, sessions: Sequence[str], export_format: str, admin_key: str) -> list[bytes]:
    if not sessions:
        raise UsageError("A running gateway is asked for one session at a time: give --session ID.")

    async def fetch() -> list[bytes]:
        async with GatewayClient(url, admin_key) as client:
            return [await client.export(session, export_format) for session in sessions]

    return asyncio.run(fetch())


def _stored(data: Path, wanted: Sequence[str]) -> list[SessionExport]:
    if not (data / FILE_NAME).is_file():
        inner = data / "gateway"
        hint = f" Did you mean {inner}?" if (inner / FILE_NAME).is_file() else ""
        raise UsageError(f"{data} is not the data folder of a gateway.{hint}")
    store = Store.open(data)
    try:
        records = {record.id: record for record in store.sessions()}
        unknown = [name for name in wanted if name not in records]
        if unknown:
            raise UsageError(f"{data} has no session {unknown[0]!r}; it has {len(records)} sessions.")
        chosen = [records[name] for name in wanted] if wanted else list(records.values())
        return [stored_export(store, record) for record in chosen]
    finally:
        store.close()


def _write_parquet(sessions: Sequence[SessionExport], export_format: str, target: Path) -> str:
    from harbor_env.gateway.export.parquet import write_parquet

    if export_format != "rows":
        raise UsageError(f"Parquet holds rows, not {export_format}: use --format rows.")
    if not any(export.turns for export in sessions):
        raise UsageError("There is no row to write: no session has a turn.")
    return f"{write_parquet(sessions, target)} rows of {len(sessions)} sessions: {target}"
