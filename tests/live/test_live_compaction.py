"""Harnesses made to compact by a small window: what they sum up is no training data, what they do is, once.

Every harness that compacts on its own goes on from its own summary and solves the task. The window reaches it as in any
rollout, through the facts about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live import proofs
from tests.live.alone import record, run_alone
from tests.live.rollouts import count

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

CASE = "forced compaction"


@dataclass(frozen=True)
class Compacting:
    """`calls` to the model make one compaction, after which there are `rows` more to train; `others` have `note`."""

    window: int
    calls: int = 1
    rows: int = 1
    others: int = 0
    policy: str = "follow"
    note: str = "one row more per compaction: the history is a summary and what was kept of it"


HARNESSES = {
    "claude-code": Compacting(48_000),
    "codex": Compacting(24_000),
    "opencode": Compacting(32_000),
    "gemini-cli": Compacting(
        40_000,
        calls=2,
        others=1,
        policy="follow_with_an_interruption",
        note="one row more per compaction, and one for the reply that the loop it detects replaces by a sentence",
    ),
    "qwen-coder": Compacting(
        72_000, rows=2, note="two rows more per compaction: it leaves its reminders out once, then puts them back"
    ),
    "pi": Compacting(24_000),
    "terminus-2": Compacting(20_000, calls=3),
}
"""Not mini-swe-agent, which never shortens a history, nor openhands-sdk, which Harbor runs without a condenser, nor
aider, which sums up nothing in a run of one message."""


@pytest.mark.parametrize("harness", HARNESSES)
async def test_a_harness_goes_on_from_its_own_summary_and_the_summary_is_not_trained(
    harness: str, tmp_path: Path
) -> None:
    known = HARNESSES[harness]
    proofs.forget(harness, CASE)
    ran, _ = await run_alone(tmp_path, harness, f"long_trail:{known.policy}", window=known.window)
    tokens = count(ran)
    compacting = [turn for turn in ran.turns if turn["role"] == "compaction"]
    times, left = divmod(len(compacting), known.calls)
    assert times > 0
    assert left == 0
    assert not any(turn["trained"] for turn in compacting)
    assert {turn["role"] for turn in ran.turns} <= {"main", "compaction", "auxiliary"}
    assert ran.turns[-1]["role"] == "main"
    assert tokens.rows == 1 + known.others + known.rows * times
    assert (ran.result.reward, tokens.share, tokens.untrained) == (1.0, 1.0, 0)
    record(harness, CASE, ran, tokens, known.note)
