"""What scripts say of a training run, from what it logged."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from scripts.check_training import facts
from scripts.plot import PANELS, curves, main
from scripts.training_time import told
from trl_integration.line_files import append_lines
from trl_integration.metrics import harness_metrics
from trl_integration.records import Record
from trl_integration.rewards import STANDARD, Scored


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


FIRST = {
    "loss": 0.1,
    "ratio/row_min": 0.99999,
    "ratio/row_max": 1.00001,
    "ratio/token_log_max": 4e-5,
    "harness/pi/ratio": 1.0,
    "groups/reward_wrong_total": 0.0,
}


@pytest.mark.parametrize(
    ("changed", "reward", "wrong"),
    [
        ({}, 1.1, ""),
        ({"ratio/row_min": 0.9}, 1.1, "importance ratio of rows"),
        ({"ratio/row_max": None}, 1.1, "importance ratio of rows"),
        ({"ratio/token_log_max": 0.01}, 1.1, "log probabilities of one token"),
        ({"ratio/token_log_max": None}, 1.1, "log probabilities of one token"),
        ({"harness/pi/ratio": None}, 1.1, "pi was trained in steps"),
        ({"groups/reward_wrong_total": 2.0}, 1.1, "2 rewards trained that no rollout has"),
        ({"loss": None}, 1.1, "steps logged"),
        ({}, 1.0, "1 rewards recomputed, 1 wrong"),
    ],
)
def test_each_fact_of_a_training_run_is_held(
    tmp_path: Path, changed: dict[str, float | None], reward: float, wrong: str
) -> None:
    first = {name: value for name, value in {**FIRST, **changed}.items() if value is not None}
    log = run(tmp_path / "run", first)
    record = Record(0, "pi", scored=Scored("pi", 1.0, 0), reward=reward)
    (log.parent / "rollouts.jsonl").write_text(json.dumps(asdict(record)) + "\n")
    told = [said for holds, said in facts(log.parent, 1, ["pi"], standard=True) if not holds]
    assert told[:1] == [said for said in told if wrong and wrong in said][:1]
    assert bool(told) == bool(wrong)


def test_what_is_not_near_in_float32_may_be_near_enough_in_bfloat16(tmp_path: Path) -> None:
    log = run(tmp_path / "run", {**FIRST, "ratio/token_log_max": 0.36})
    (log.parent / "rollouts.jsonl").write_text(json.dumps(asdict(Record(0, "pi", scored=Scored("pi", 1.0, 0)))) + "\n")
    assert all(holds for holds, _ in facts(log.parent, 1, ["pi"], token_close=0.5, standard=False))


@pytest.mark.parametrize("given", [["--window", "0"], ["/nowhere/log.jsonl"]])
def test_what_cannot_be_plotted_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    log = run(tmp_path / "run", {"harness/pi/reward": 0.0})
    monkeypatch.setattr("sys.argv", ["plot.py", "--out", str(tmp_path / "plot.png"), str(log), *given])
    with pytest.raises(SystemExit, match=r"plot\.py: "):
        main()


def test_a_log_that_is_being_written_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    log = run(tmp_path / "run", {"harness/pi/reward": 0.0})
    with log.open("a") as file:
        file.write('{"step": 2, "harn')
    assert curves([log], "reward", window=1) == {"run: pi": ([1], [0.0])}


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_rollouts_an_hour_are_those_of_the_steps_that_have_a_duration(tmp_path: Path, starts: int) -> None:
    """Each step trained two rollouts in 36 seconds, but the first of a start has no duration."""
    steps = [{"loss": 0.1, **({"perf/step_s": 36.0} if step % 4 else {})} for step in range(4 * starts)]
    folder = run(tmp_path / "run", *steps, {"train_loss": 0.1}).parent
    lines = [json.dumps(asdict(Record(group, "pi", scored=Scored("pi", 1.0, 0)))) for group in range(8 * starts)]
    (folder / "rollouts.jsonl").write_text("\n".join(lines) + "\n")
    assert f"run: {3 * starts} steps of 36.0 s, 200 scored rollouts an hour" in told(folder)


@pytest.mark.parametrize("standard", [True, False])
def test_groups_that_teach_nothing_or_only_brevity_are_told(tmp_path: Path, standard: bool) -> None:
    """Of four groups one has no contrast and two only that of their tool calls."""
    log = run(tmp_path / "run", FIRST)
    scores = [[(1.0, 2), (1.0, 2)], [(1.0, 2), (1.0, 3)], [(1.0, 0), (1.0, 9)], [(1.0, 1), (0.0, 1)]]
    scored = [(group, Scored("pi", *got)) for group, both in enumerate(scores) for got in both]
    records = [Record(group, "pi", scored=score, reward=STANDARD(score)) for group, score in scored]
    append_lines(log.parent / "rollouts.jsonl", map(asdict, records))
    found = list(facts(log.parent, 1, ["pi"], standard=standard))
    assert (True, "4 groups: 1 without contrast, 2 whose only contrast was the bonus") in found
