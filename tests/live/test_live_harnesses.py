"""A real harness hands work to a subagent of its own: every token comes out once, in a row for each conversation.

The engine is scripted, so the answers are known; its tokens are real ones of Qwen3's tokenizer, one in ten split as no
encoder would split it, its JSON oddly spaced, and it thinks and talks before every call.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harbor_env.gateway.engines.scripted_tokens import synthetic_logprob
from tests.tokenizers import qwen3_dir

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

ENGINE = "scripted:tests.live.{policy}?noncanonical=0.1&odd_json=0.5&seed=11&window={window}"
REPOSITORY = Path(__file__).parents[2]
SECONDS = 800


@dataclass(frozen=True)
class Ran:
    """One rollout of the command line: its result, its rows and its compact trace."""

    result: dict[str, Any]
    rows: list[dict[str, Any]]
    trace: dict[str, Any]


def run(out: Path, harness: str, policy: str, *, task: str = "l3-eight-step-trail", window: int = 131_072) -> Ran:
    command = [sys.executable, "-m", "harbor_env.cli", "rollout", "--json", "--out", str(out), "--harness", harness]
    command += ["--task", task, "--engine", ENGINE.format(policy=policy, window=window)]
    command += ["--tokenizer", str(qwen3_dir())]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ok"], (result["reason"], result["log_tail"], done.stderr)
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    return Ran(result, rows, json.loads((out / result["trace"]).read_bytes()))


def assert_trained_once(ran: Ran) -> None:
    """Law 3 over the exported rows: as many ones as sampled tokens, each with the engine's own log probability.

    A compaction's tokens are context by default: the reward does not judge a summary.
    """
    sampled = [token for turn in ran.trace["turns"] if turn["role"] != "compaction" for token in turn["sampled_ids"]]
    trained = []
    for row in ran.rows:
        assert len(row["input_ids"]) == len(row["loss_mask"]) == len(row["logprobs"])
        for token, mask, logprob in zip(row["input_ids"], row["loss_mask"], row["logprobs"], strict=True):
            assert logprob == (synthetic_logprob(token) if mask else 0.0)
            trained += [token] if mask else []
    assert sorted(trained) == sorted(sampled)
    assert sampled


@pytest.mark.parametrize("policy", ["delegate_in_front", "delegate_in_background"])
def test_a_subagent_is_one_row_of_its_own_however_its_calls_interleave(policy: str, tmp_path: Path) -> None:
    ran = run(tmp_path, "claude-code", f"claude_policies:{policy}")
    assert ran.result["reward"] == 1.0
    assert sorted(row["role"] for row in ran.rows) == ["main", "subagent"]
    assert ran.result["atif"]["status"] == "match"
    assert_trained_once(ran)
