"""Every harness in every case: no token is lost or trained twice, whatever the harness makes of what goes wrong.

More rows than one, or a token that is not trained, need a reason, which is written down here: the harness really sent
another history.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.live import proofs
from tests.live.reasons import BESIDE, USUAL, reason_for
from tests.live.rollouts import Suite, count, slug
from tests.live.upsets import CASES

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

NAMED = (
    *("aider", "aider@messages"),
    "claude-code",
    "codex",
    "gemini-cli",
    *("mini-swe-agent", "mini-swe-agent@messages", "mini-swe-agent@responses"),
    *("opencode", "opencode@gemini", "opencode@messages", "opencode@responses"),
    *("openhands-sdk", "openhands-sdk@messages", "openhands-sdk@responses"),
    *("pi", "pi@messages", "pi@responses"),
    "qwen-coder",
    *("terminus-2", "terminus-2@messages", "terminus-2@responses"),
)
TOOLLESS = ("aider", "terminus-2")
OF_TOOLS = ("two parallel calls", "unknown tool", "the same call six times")
SMOOTH = ("plain", "thinking, text and a call", "two parallel calls", "engine 500, then 429")
"""Cases after which every harness still solves the task."""
FOUND: Mapping[str, Mapping[str, int]] = {
    "malformed arguments": {"arguments_malformed": 1},
    "engine 500, then 429": {"engine_error": 1, "rate_limited": 1},
}
CELLS = [
    (name, case) for name in NAMED for case in CASES if case not in OF_TOOLS or name.partition("@")[0] not in TOOLLESS
]
KEPT = os.environ.get("OPENENV_HARBOR_LIVE", "")
"""A folder to keep the rollouts in, and to go on from: what it has is checked again but not run again."""


@pytest.fixture(scope="module")
def suite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """The chosen cells, which start running together."""
    chosen = [item for item in request.session.items if "suite" in getattr(item, "fixturenames", ())]
    cells = [(item.callspec.params["harness"], item.callspec.params["case"]) for item in chosen]  # type: ignore[attr-defined]
    suite = Suite(Path(KEPT) if KEPT else tmp_path_factory.mktemp("live"), cells)
    yield suite
    suite.close()


@pytest.mark.parametrize(("harness", "case"), CELLS, ids=map(slug, CELLS))
def test_a_harness_keeps_every_token_in_one_row_or_has_a_reason(harness: str, case: str, suite: Suite) -> None:
    proofs.forget(harness, case)
    ran, name, reason = suite.ran((harness, case)), harness.partition("@")[0], reason_for(harness, case)
    tokens, findings = count(ran), ran.result.findings
    expected = FOUND.get(case, {}) if name not in TOOLLESS or case in SMOOTH else {}
    assert (tokens.rows, tokens.untrained) == (reason.rows, reason.untrained)
    assert {code: findings.get(code) for code in expected} == expected
    assert set(findings) <= {*expected, *USUAL, *BESIDE.get(name, ()), *reason.findings}
    assert ran.engine_errors == [code for code in expected if case.startswith("engine")]
    assert ("length" in [turn["finish_reason"] for turn in ran.turns]) == (case == "length cut")
    assert ran.result.atif.status in ("match", "none") or case not in SMOOTH
    assert ran.result.reward == 1.0 or case not in SMOOTH
    assert suite.secrets(ran) == []
    facts = {"reward": ran.result.reward, "turns": len(ran.turns), "rows": tokens.rows, "trained": tokens.share}
    proofs.record(harness, case, {**facts, "sampled": tokens.sampled, "findings": findings, "note": reason.note})
