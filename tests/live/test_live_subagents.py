"""Harnesses that hand work to subagents: each conversation is a row of its own, however their calls interleave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live import proofs
from tests.live.alone import record, run_alone
from tests.live.rollouts import count
from tests.live.side_jobs import SIDE_JOB

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

CASE = "subagent"
WAYS = [
    ("claude-code", "delegate", 1),
    ("claude-code", "delegate_in_background", 1),
    ("codex", "delegate", 1),
    ("codex", "delegate_in_background", 1),
    ("opencode", "delegate_twice", 2),
    ("gemini-cli", "delegate_twice", 2),
    ("qwen-coder", "delegate", 1),
    ("qwen-coder", "delegate_in_background", 1),
]
"""Harness, policy, subagents. Not mini-swe-agent, pi, terminus-2, aider and openhands-sdk, which offer none."""


@pytest.mark.parametrize(("harness", "policy", "subagents"), WAYS)
async def test_each_conversation_is_one_row_and_has_the_role_its_first_message_gives_it(
    harness: str, policy: str, subagents: int, tmp_path: Path
) -> None:
    proofs.forget(harness, CASE)
    ran, _ = await run_alone(tmp_path, harness, f"side_jobs:{policy}")
    tokens = count(ran)
    assert ran.result.reward == 1.0
    trained = sorted(row["role"] for row in ran.rows if row["trained_tokens"])
    assert trained == ["main", *["subagent"] * subagents]
    assert (tokens.share, tokens.untrained) == (1.0, 0)
    by_id = {turn["id"]: turn for turn in ran.turns}
    for turn in ran.turns:
        told = _told(by_id, turn)
        assert turn["role"] == "auxiliary" or (turn["role"] == "subagent") == (SIDE_JOB in told)
    record(harness, CASE, ran, tokens, f"one row for each subagent, {subagents} here")


def _told(turns: dict[str, dict[str, Any]], turn: dict[str, Any]) -> str:
    """What the users and the system of the turn's conversation said before anything was sampled in it."""
    while turn["parent"]:
        turn = turns[turn["parent"]]
    return "\n".join(m["content"] or "" for m in turn["messages"] if m["role"] in ("user", "system"))
