"""Captured sessions to a file: from a batch's folder, from a gateway's data folder, or from a running gateway.

Of a batch, the sessions are those of each rollout's last try, and their metadata carries its reward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harbor_env.errors import UsageError
from harbor_env.gateway.export import SessionExport, find_format
from harbor_env.gateway.store import FILE_NAME, Store
from harbor_env.gateway.stored_export import public_id, stored_export
from harbor_env.gateway_client import GatewayClient
from harbor_env.outcome import RolloutResult
from harbor_env.records import RESULTS, read_results
from harbor_env.tally import count
from harbor_env.whole_file import write_whole

SUFFIXES = {"trace": ".json", "rows": ".jsonl", "messages": ".jsonl", "sft": ".jsonl", "safetensors": ".safetensors"}
ONE_SESSION = frozenset({"trace", "safetensors"})
"""Formats whose file is one session; the others are lines, of as many sessions as asked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions of a folder: those named, else those of a batch that scored `min_reward` or more, else all.

    A session is named by its id, by what exports call it, or by its rollout. `everything` takes those of failed
    rollouts and of tries that were repeated as well.
    """

    sessions: tuple[str, ...] = ()
    min_reward: float | None = None
    everything: bool = False


def export_folder(data: Path, wanted: Wanted, export_format: str, out: Path | None) -> str:
    """Write sessions of a batch's or a gateway's folder; says what was written. UsageError for what cannot be."""
    target = _target(out, export_format)
    sessions, left_out = _stored(data, wanted)
    note = f"; {count(left_out, 'session')} without such a score left out (--all takes them)" if left_out else ""
    if target.suffix == ".parquet":
        return _write_parquet(sessions, export_format, target) + note
    encode = find_format(export_format).encode
    return _write([encode(export) for export in sessions], export_format, target) + note


def export_running(url: str, sessions: Sequence[str], export_format: str, out: Path | None, admin_key: str) -> str:
    """Write sessions of a gateway that runs. UsageError or GatewayError."""
    target = _target(out, export_format)
    if target.suffix == ".parquet":
        raise UsageError("Parquet is written from a data folder: give --data instead of --url.")
    if not sessions:
        raise UsageError("A running gateway is asked for one session at a time: give --session ID.")

    async def fetch() -> list[bytes]:
        async with GatewayClient(url, admin_key) as client:
            return [await client.export(session, export_format) for session in sessions]

    return _write(asyncio.run(fetch()), export_format, target)


def _target(out: Path | None, export_format: str) -> Path:
    return out or Path(f"export{SUFFIXES.get(export_format, '.bin')}")


def _write(bodies: Sequence[bytes], export_format: str, target: Path) -> str:
    if len(bodies) > 1 and export_format in ONE_SESSION:
        raise UsageError(f"A {export_format} file holds one session and there are {len(bodies)}: give --session NAME.")
    write_whole(target, bodies)
    return f"{count(len(bodies), 'session')} as {export_format}: {target}"


def _stored(data: Path, wanted: Wanted) -> tuple[list[SessionExport], int]:
    """The sessions, and how many were left out for want of a score."""
    folder = _store_folder(data)
    results = {result.session: result for result in read_results(data).values() if result.session}
    if wanted.min_reward is not None and not results:
        raise UsageError(f"{data} knows of no rewards: --min-reward is for the folder of a batch (its --out).")
    store = Store.open(folder)
    try:
        records = {public_id(record.id): record for record in store.sessions()}
        chosen = [_named(name, {r.id: key for key, r in records.items()}, results, data) for name in wanted.sessions]
        left_out = 0
        if not chosen:
            chosen = [key for key in records if wanted.everything or not results or _scored(results.get(key), wanted)]
            left_out = len(records) - len(chosen)
        if not chosen:
            raise UsageError(f"{data} has nothing to write: {_why_empty(left_out)}.")
        return [_rewarded(stored_export(store, records[key]), results.get(key)) for key in chosen], left_out
    finally:
        store.close()


def _why_empty(left_out: int) -> str:
    return f"none of its {count(left_out, 'session')} has such a score (--all takes them)" if left_out else "no session"


def _store_folder(data: Path) -> Path:
    """Where the store is: in the folder itself, or in that of the batch's own gateway."""
    found = next((folder for folder in (data, data / "gateway") if (folder / FILE_NAME).is_file()), None)
    if found is None and (data / RESULTS).is_file():
        raise UsageError(
            f"The sessions of {data} are with the gateway that captured them: export from its folder, or take"
            " traces/ and rows.jsonl."
        )
    if found is None:
        raise UsageError(f"{data} is not the data folder of a gateway, nor that of a batch.")
    return found


def _scored(result: RolloutResult | None, wanted: Wanted) -> bool:
    if result is None or result.reward is None:
        return False
    return wanted.min_reward is None or result.reward >= wanted.min_reward


def _named(name: str, ids: Mapping[str, str], results: Mapping[str, RolloutResult], data: Path) -> str:
    rollouts = {result.name: key for key, result in results.items()}
    key = ids.get(name) or rollouts.get(name) or name
    if key not in ids.values():
        raise UsageError(f"{data} has no session {name!r}; it has {count(len(ids), 'session')}.")
    return key


def _rewarded(export: SessionExport, result: RolloutResult | None) -> SessionExport:
    return export if result is None else replace(export, metadata={**export.metadata, "reward": result.reward})


def _write_parquet(sessions: Sequence[SessionExport], export_format: str, target: Path) -> str:
    from harbor_env.gateway.export.parquet import write_parquet

    if export_format != "rows":
        raise UsageError(f"Parquet holds rows, not {export_format}: use --format rows.")
    if not any(export.turns for export in sessions):
        raise UsageError("There is no row to write: no session has a turn.")
    rows = write_parquet(sessions, target)
    return f"{count(rows, 'row')} of {count(len(sessions), 'session')}: {target}"
