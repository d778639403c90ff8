"""What the gateway captured of a rollout, fetched once and kept as files without the session's secrets.

A file appears whole or not at all, so that a batch killed at any moment can be resumed from what it left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from harbor_env.atif import CapturedCall
from harbor_env.gateway.export.session_export import DISCARDED
from harbor_env.gateway_client import GatewayClient, OpenSession
from harbor_env.outcome import ENGINE_CODES
from harbor_env.whole_file import write_whole


@dataclass(frozen=True, slots=True)
class Capture:
    """Counts of a session, its findings by code, the tool calls its turns sampled, and where its trace and rows lie.

    `counts`: calls, turns, roots, leaves, rows, sampled and trainable tokens, and tool calls but those of discarded
    replies. Files are named relative to the batch. `engine_said` is how the engine put its last failure.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    calls: tuple[CapturedCall, ...] = ()
    trace: str = ""
    rows: str = ""
    engine_said: str = ""

    @property
    def turns(self) -> int:
        return self.counts.get("turns", 0)


async def fetch_capture(client: GatewayClient, session: OpenSession, out: Path, name: str) -> Capture:
    """Counts always; trace and rows, below `out/traces`, where there is a turn. Raises GatewayError."""
    counts = await client.counts(session.id)
    flat = {key: value for key, value in counts.items() if isinstance(value, int)}
    flat |= {f"{key}_tokens": value for key, value in (counts.get("tokens") or {}).items()}
    capture = Capture(flat, counts.get("findings") or {})
    if not capture.turns and not capture.findings:
        return capture
    anonymous = _Anonymous(session, name)
    trace = anonymous.clean(await client.export(session.id, "trace"))
    told = orjson.loads(trace)
    said = _engine_said(told)
    if not capture.turns:
        return Capture(flat, capture.findings, engine_said=said)
    rows = anonymous.clean(await client.export(session.id, "rows"))
    files = (f"traces/{name}.trace.json", f"traces/{name}.rows.jsonl")
    for file, content in zip(files, (trace, rows), strict=True):
        write_whole(out / file, [content])
    calls = captured_calls(told)
    flat["tool_calls"] = sum(not call.discarded for call in calls)
    return Capture(flat, capture.findings, calls, *files, engine_said=said)


def _engine_said(trace: Mapping[str, Any]) -> str:
    said = [finding["detail"] for finding in trace["findings"] if finding["code"] in ENGINE_CODES]
    return said[-1] if said else ""


def captured_calls(trace: Mapping[str, Any]) -> tuple[CapturedCall, ...]:
    """Every tool call the turns of a compact trace sampled, in its order."""
    return tuple(
        CapturedCall(call["id"], call["function"]["name"], discarded=_discarded(turn), turn=turn["id"])
        for turn in trace.get("turns", ())
        for call in turn["reply"].get("tool_calls", ())
    )


def _discarded(turn: Mapping[str, Any]) -> bool:
    return any(finding["code"] == DISCARDED.code for finding in turn.get("findings", ()))


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None where there is none or it is not one."""
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return document if isinstance(document, dict) else None


@dataclass(frozen=True, slots=True)
class _Anonymous:
    """Exports name their session, and a session's id opens it: the rollout's name stands in its place."""

    session: OpenSession
    name: str

    def clean(self, content: bytes) -> bytes:
        for secret in (self.session.key, self.session.id):
            content = content.replace(secret.encode(), self.name.encode())
        return content
