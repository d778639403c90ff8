"""Every harness in every case: no token is lost or trained twice, whatever the harness makes of what goes wrong.

More rows than one need a reason, which is written down here: the harness really sent another history.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harbor_env.gateway.engines.scripted_tokens import synthetic_logprob
from tests.live import proofs
from tests.live.test_live_harnesses import secrets_left
from tests.tokenizers import qwen3_dir

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

ENGINE = "scripted:tests.live.upsets:{policy}?noncanonical=0.1&odd_json=0.5&seed=11"
CASES = {
    "plain": "Plain",
    "two parallel calls": "Parallel",
    "malformed arguments": "Malformed",
    "unknown tool": "UnknownTool",
    "empty reply": "Empty",
    "length cut": "Cut",
    "engine 500, then 429": "Failing",
    "the same call six times": "Stuck",
}
SMOOTH = {"plain", "two parallel calls", "engine 500, then 429"}
"""Cases after which every harness still solves the task."""

NAMED = (
    "codex",
    "opencode",
    "opencode@messages",
    "opencode@responses",
    "opencode@gemini",
    "gemini-cli",
    "qwen-coder",
    "pi",
    "pi@messages",
    "pi@responses",
    "terminus-2",
    "openhands-sdk",
    "mini-swe-agent",
    "claude-code",
)
REASONS: dict[tuple[str, str], tuple[int, str]] = {
    ("aider", "plain"): (2, "files added to the chat stand before what was said"),
    ("gemini-cli", "the same call six times"): (2, "the reply it interrupts is replaced by a sentence that says so"),
}


def go(out: Path, harness: str, policy: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "harbor_env.cli", "rollout", "--json", "--out", str(out), "--harness", harness]
    command += ["--task", "l3-eight-step-trail", "--engine", ENGINE.format(policy=policy)]
    command += ["--tokenizer", str(qwen3_dir())]
    done = subprocess.run(command, cwd=proofs.REPOSITORY, capture_output=True, text=True, timeout=800, check=False)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def trained_share(out: Path, result: dict[str, Any]) -> tuple[int, float]:
    """Rows that train something, and the share of main and subagent tokens that is trained, with its log probability.

    More than was sampled would be a share above one.
    """
    turns = json.loads((out / result["trace"]).read_bytes())["turns"]
    sampled = sorted(
        token
        for turn in turns
        if turn["role"] in ("main", "subagent") and turn["trained"]
        for token in turn["sampled_ids"]
    )
    rows = [json.loads(line) for line in (out / result["rows"]).read_text().splitlines()]
    trained = []
    for row in rows:
        for token, mask, logprob in zip(row["input_ids"], row["loss_mask"], row["logprobs"], strict=True):
            assert logprob == (synthetic_logprob(token) if mask else 0.0)
            trained += [token] if mask else []
    assert sorted(trained) == sampled
    return sum(row["trained_tokens"] > 0 for row in rows), len(trained) / len(sampled)


def check(out: Path, harness: str, case: str) -> None:
    result = go(out, harness, CASES[case])
    rows, share = trained_share(out, result)
    expected, reason = REASONS.get((harness, case), (1, ""))
    note = reason or ("" if result["ok"] else f"the harness gives up: {result['reason']['kind']}")
    facts = {"reward": result["reward"], "turns": result["counts"]["turns"], "rows": rows, "trained": share}
    proofs.record(harness, case, {**facts, "findings": result["findings"], "note": note})
    assert rows == expected
    assert share == 1.0
    assert result["atif"]["status"] in ("match", "none") or case not in SMOOTH
    assert secrets_left(out) == []
    if case in SMOOTH:
        assert result["reward"] == 1.0


@pytest.mark.parametrize("harness", [*NAMED, "aider"])
def test_a_harness_solves_the_trail_in_each_dialect_it_speaks(harness: str, tmp_path: Path) -> None:
    check(tmp_path, harness, "plain")


@pytest.mark.parametrize("case", [case for case in CASES if case != "plain"])
@pytest.mark.parametrize("harness", [name for name in NAMED if "@" not in name])
def test_a_harness_keeps_every_token_when_something_goes_wrong(harness: str, case: str, tmp_path: Path) -> None:
    check(tmp_path, harness, case)
