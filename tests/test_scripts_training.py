"""What scripts say of a training run, from what it logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.plot import PANELS, curves
from trl_integration.metrics import harness_metrics
from trl_integration.records import Record
from trl_integration.rewards import Scored


def run(folder: Path, *steps: dict[str, Any]) -> Path:
    """The log of a run that logged these metrics, step after step."""
    folder.mkdir()
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps({"step": number, **step}) + "\n" for number, step in enumerate(steps, 1)))
    return log


def test_every_panel_shows_a_metric_that_is_logged_and_reward_has_one() -> None:
    logged = harness_metrics([Record(0, "pi", scored=Scored("pi", 1.0, 2), reward=1.1)], version=1)
    assert {f"harness/pi/{name}" for name in PANELS} <= {*logged, "harness/pi/ratio"}
    assert "reward" in PANELS


def test_a_curve_is_a_mean_over_the_last_steps_for_each_run_and_harness(tmp_path: Path) -> None:
    first = run(
        tmp_path / "a", {"harness/pi/reward": 0.0}, {"loss": 1}, {"harness/pi/reward": 1.0, "harness/x/rows": 3}
    )
    second = run(tmp_path / "b", {"harness/own.module:MINE/reward": 0.5, "reward": 7})
    assert curves([first, second], "reward", window=2) == {
        "a: pi": ([1, 3], [0.0, 0.5]),
        "b: own.module:MINE": ([1], [0.5]),
    }
