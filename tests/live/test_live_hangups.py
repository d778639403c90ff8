"""Connections that break under a harness: no reply is lost, none is trained that the harness did not get whole.

Three times in one rollout: a reply that never leaves the wire, a call given up while the engine works, half a reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live import proofs
from tests.live.alone import record, run_alone
from tests.live.fake_wire import Break
from tests.live.rollouts import count

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

CASE = "dropped connection"
BREAKS: Mapping[int, Break] = {4: "unseen", 9: "half"}
"""By model call. The call that is given up comes between them."""
ALL = ("unseen", "waiting", "half")


@dataclass(frozen=True)
class Expected:
    """How far a harness came, in how many rows, and why."""

    broken: tuple[str, ...] = ALL
    rows: int = 1
    note: str = "asks again each time; what it did not get whole is not trained"


HARNESSES = {
    "claude-code": Expected(),
    "codex": Expected(),
    "gemini-cli": Expected(
        ALL[:2], note="gives up when the line breaks in a stream that began, if only with a keep-alive"
    ),
    "mini-swe-agent": Expected(),
    "opencode": Expected(),
    "openhands-sdk": Expected(),
    "pi": Expected(),
    "qwen-coder": Expected(rows=2, note="makes one reply of the half it got and of what it then asked for"),
    "terminus-2": Expected(),
}
"""Not aider, which is done after two calls."""


@pytest.mark.parametrize("harness", HARNESSES)
async def test_a_reply_a_harness_did_not_get_whole_is_kept_and_not_trained(harness: str, tmp_path: Path) -> None:
    known = HARNESSES[harness]
    proofs.forget(harness, CASE)
    ran, wire = await run_alone(tmp_path, harness, "hang_ups:Slow", breaks=BREAKS)
    assert wire is not None
    assert tuple(wire.broken) == known.broken
    tokens = count(ran)
    lost = len(known.broken) - 1  # a call given up while it waits leaves nothing
    discarded = [turn for turn in ran.turns if "discarded" in [finding["code"] for finding in turn["findings"]]]
    assert [turn["trained"] for turn in discarded] == [False] * lost
    assert (tokens.rows, tokens.untrained) == (known.rows, lost)
    assert ran.result.atif.status in ("match", "none")
    assert ran.result.reward == (1.0 if known.broken == ALL else 0.0)
    record(harness, CASE, ran, tokens, known.note)
