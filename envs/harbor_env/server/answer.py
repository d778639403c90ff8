"""A rollout's result as a client receives it, made in the worker: its trace, logs and numbers in one object.

Invariant: what is too large to send is left out and said so in `flags`, never cut.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harbor_env.outcome import Kind, Reason, RolloutResult, one_line
from harbor_env.packing import pack
from harbor_env.rollout import RolloutSpec
from harbor_env.scrub import newest_tail

TRAJECTORY_LIMIT = 32 * 2**20
"""Bytes of a harness's own trace, before packing, that still travel with a result."""


def answer(result: RolloutResult, out: Path) -> dict[str, Any]:
    """The fields of a `HarborResult`. Reads the files the rollout left below `out`."""
    fields = asdict(result)
    flags = list(result.flags)
    trajectory = out / "logs" / result.name / "agent" / "trajectory.json"
    harness_trace = b""
    if trajectory.is_file():
        if trajectory.stat().st_size <= TRAJECTORY_LIMIT:
            harness_trace = trajectory.read_bytes()
        else:
            flags.append("trajectory_too_large")
    tails = {"agent": result.log_tail or newest_tail(out / "logs" / result.name / "agent")}
    tails["verifier"] = newest_tail(out / "logs" / result.name / "verifier")
    for name in ("name", "log_tail", "rows", "session", "model", "tries", "earlier"):
        fields.pop(name)
    return {
        **fields,
        "id": result.name,
        "flags": flags,
        "log_tails": {name: text for name, text in tails.items() if text},
        "trace": pack((out / result.trace).read_bytes()) if result.trace else "",
        "trajectory": pack(harness_trace) if harness_trace.lstrip()[:1] == b"{" else "",
    }


def failed(spec: RolloutSpec, kind: Kind, sentence: str, seconds: float = 0.0) -> RolloutResult:
    """A rollout that came to nothing, as the value it is."""
    base = RolloutResult(spec.name, spec.task.name, spec.harness, spec.sandbox, ok=False, reward=None)
    return replace(base, reason=Reason(kind, one_line(sentence)), seconds={"total": round(seconds, 3)})
