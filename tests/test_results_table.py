"""`results.parquet`: typed columns for whatever a batch came to, read by the library trainers read data with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from datasets import load_dataset

from harbor_env.atif import AtifCheck
from harbor_env.outcome import Reason, RolloutResult
from harbor_env.results_table import write_table

SCORED = RolloutResult(
    *("a", "t", "h", "local"),
    ok=True,
    reward=0.0,
    flags=("timeout",),
    rewards={"reward": 0.0, "style": 1},
    seconds={"total": 2.5, "agent": 1.25},
    counts={"turns": 2, "rows": 1, "sampled_tokens": 31},
    findings={"branch": 1},
    atif=AtifCheck("match"),
    rows="traces/a.rows.jsonl",
    tries=2,
    earlier=(Reason("sandbox", "No room."),),
)
FAILED = replace(
    SCORED, name="b", ok=False, reward=None, reason=Reason("engine", "It is down."), counts={}, flags=(), earlier=()
)


def read(out: Path) -> list[dict[str, object]]:
    table = load_dataset(
        "parquet", data_files=str(out / "results.parquet"), split="train", cache_dir=str(out / "cache")
    )
    return list(table)


def test_every_rollout_is_a_row_and_what_is_unknown_is_null(tmp_path: Path) -> None:
    assert write_table(tmp_path, [SCORED, FAILED]) == 2
    scored, failed = read(tmp_path)
    assert (scored["name"], scored["reward"], scored["rewards"]) == ("a", 0.0, '{"reward":0.0,"style":1}')
    assert (scored["turns"], scored["training_rows"], scored["roots"]) == (2, 1, None)
    assert (scored["total_seconds"], scored["agent_seconds"], scored["setup_seconds"]) == (2.5, 1.25, None)
    assert (scored["tries"], scored["earlier"], scored["flags"]) == (2, ["sandbox: No room."], ["timeout"])
    assert (scored["reason"], scored["atif"], scored["findings"]) == (None, "match", '{"branch":1}')
    assert (failed["reward"], failed["reason"], failed["sentence"]) == (None, "engine", "It is down.")


def test_a_batch_without_a_score_has_the_same_columns(tmp_path: Path) -> None:
    for name, results in (("one", [SCORED]), ("two", [FAILED])):
        (tmp_path / name).mkdir()
        write_table(tmp_path / name, results)
    [one], [two] = read(tmp_path / "one"), read(tmp_path / "two")
    assert one.keys() == two.keys()
