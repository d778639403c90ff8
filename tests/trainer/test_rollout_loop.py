"""What becomes of a group's rollouts between an environment server and the trainer's queue."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harbor_env.errors import UsageError
from tests.trainer.loops import HARNESSES, FakeServer, Outcome, group_of, pushed, rollout_loop
from trl_integration.worker import HARNESS, HarborRolloutWorker, NothingScores, NothingTrains

GOOD: Outcome = (1.0, "one_row")
BAD: Outcome = (0.0, "one_row")
LOST: Outcome = (None, "one_row")


async def test_an_unscorable_rollout_leaves_its_group_and_no_row_of_it_is_trained() -> None:
    with rollout_loop(GOOD, LOST, BAD) as loop:
        samples = await loop._score_group(await group_of(loop, 3))
    assert [sample.advantage for sample in samples] == pytest.approx([1.0, -1.0])
    assert [sample.metrics["reward"] for sample in samples] == pytest.approx([1.1, 0.0])


@pytest.mark.parametrize("outcomes", [[GOOD, LOST], [LOST, LOST]])
async def test_a_group_with_fewer_than_two_scored_rollouts_is_not_queued(outcomes: list[Outcome]) -> None:
    with rollout_loop(*outcomes) as loop:
        assert await loop._score_group(await group_of(loop, 2)) == []
        assert pushed(loop)["groups/too_few_scored_total"] == 1.0


@pytest.mark.parametrize(("drop", "queued"), [(True, 0), (False, 2)])
async def test_a_group_without_contrast_is_dropped_where_that_is_wanted(drop: bool, queued: int) -> None:
    with rollout_loop(BAD, drop_without_contrast=drop) as loop:
        samples = await loop._score_group(await group_of(loop, 2))
        assert [sample.advantage for sample in samples] == [0.0] * queued
        assert pushed(loop)["groups/without_contrast"] == (1.0, 1.0)


async def test_a_group_whose_only_difference_is_in_what_is_unscorable_has_no_contrast() -> None:
    with rollout_loop(BAD, LOST, BAD, drop_without_contrast=True) as loop:
        assert await loop._score_group(await group_of(loop, 3)) == []


async def test_a_rollout_votes_once_in_the_baseline_and_each_of_its_rows_has_its_advantage() -> None:
    with rollout_loop((1.0, "two_rows"), BAD) as loop:
        samples = await loop._score_group(await group_of(loop, 2))
    assert [sample.advantage for sample in samples] == pytest.approx([1.0, 1.0, -1.0])
    assert [sample.input_ids.tolist() for sample in samples] == [[1, 2, 3, 4, 5], [1, 9, 6], [1, 2, 3, 4, 5]]
    assert [sample.completion_mask.tolist() for sample in samples][:2] == [[0, 0, 0, 1, 1], [0, 0, 1]]


@pytest.mark.parametrize("number", [0, 1, 6])
async def test_every_row_carries_the_number_of_its_group_s_harness(number: int) -> None:
    with rollout_loop(GOOD, BAD) as loop:
        samples = await loop._score_group(await group_of(loop, 2, number))
        assert {sample.metrics[HARNESS] for sample in samples} == {number % 2}
        assert pushed(loop)[f"harness/{HARNESSES[number % 2]}/pass_rate"] == (1.0, 2.0)


async def test_every_rollout_is_written_down_whatever_became_of_it(tmp_path: Path) -> None:
    path = tmp_path / "new/rollouts.jsonl"
    with rollout_loop(GOOD, LOST, records=str(path), version=4) as loop:
        for number in (0, 1):
            await loop._score_group(await group_of(loop, 2, number))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["group"], line["harness"], line["version"]) for line in lines] == [
        (0, "tiny", 4),
        (0, "tiny", 4),
        (1, "forgetful", 4),
        (1, "forgetful", 4),
    ]
    assert [line["reward"] for line in lines] == [pytest.approx(1.1), None, None, None]
    assert [line["cause"] for line in lines] == ["", "sandbox", "sandbox", "sandbox"]
    assert (lines[0]["trained"], lines[0]["context"], lines[0]["versions"]) == (2, 3, 1)


def test_a_run_in_which_nothing_scores_any_more_stops_with_the_reason() -> None:
    with rollout_loop(GOOD, LOST, stop_after=3, max_inflight_tasks=1) as loop:
        with pytest.raises(NothingScores, match="3 rollouts in a row could not be scored"):
            loop.run()
        assert loop._failed_event.is_set()
        kind, said, _ = loop._exception_info_queue.get_nowait()
        assert loop.rollout_buffer.left_behind, "the process would wait for a trainer that reads no more"
    assert kind == "NothingScores"
    assert "sandbox: no sandbox could be had" in said


@pytest.mark.parametrize(
    ("outcomes", "options", "why"),
    [
        ([(1.0, "untrained"), (0.0, "untrained")] * 4, {}, "4 whose rollouts have no row to train"),
        ([BAD], {"drop_without_contrast": True}, "4 whose rollouts all earned the same"),
        ([GOOD, LOST] * 8, {}, r"4 with fewer than two scored rollouts\. \w+: sandbox: no sandbox could be had"),
    ],
)
def test_a_run_in_which_no_group_is_trained_any_more_stops_with_the_reason(
    outcomes: list[Outcome], options: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with rollout_loop(*outcomes, stop_after_groups=4, max_inflight_tasks=1, **options) as loop:
        with pytest.raises(NothingTrains, match=f"4 groups in a row had nothing to train: {why}"):
            loop.run()
        kind, _, _ = loop._exception_info_queue.get_nowait()
    assert kind == "NothingTrains"
    assert "1 of 1 groups had nothing to train" in capsys.readouterr().err


async def test_a_group_that_is_trained_starts_the_count_of_groups_again() -> None:
    with rollout_loop(LOST, LOST, GOOD, BAD, LOST, stop_after_groups=2) as loop:
        lengths = [len(await loop._score_group(await group_of(loop, 2, number))) for number in range(3)]
        assert lengths == [0, 2, 0]
        loop._stop_event.set()
        assert await loop._score_group(await group_of(loop, 2, 3)) == [], "what the end cuts short is not counted"


async def test_a_reward_that_is_not_the_one_of_its_record_is_counted() -> None:
    with rollout_loop(GOOD, BAD, LOST) as loop:
        group = await group_of(loop, 3)
        await loop._score_group(group)
        assert pushed(loop)["groups/reward_wrong_total"] == 0.0
        other = await group_of(loop, 2, 1)
        other.rollout_rewards[0] = 0.5
        await loop._score_group(other)
        assert pushed(loop)["groups/reward_wrong_total"] == 1.0


def test_the_rollouts_of_groups_that_were_never_whole_are_written_down_too(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    options: dict[str, Any] = {"stop_after": 3, "max_inflight_tasks": 1, "num_generations": 4, "records": str(path)}
    with rollout_loop(LOST, **options) as loop, pytest.raises(NothingScores):
        loop.run()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["group"], line["cause"]) for line in lines] == [(0, "sandbox")] * 3


async def test_rollouts_that_the_trainer_s_end_closes_are_no_failures() -> None:
    with rollout_loop(LOST, stop_after=2) as loop:
        loop._stop_event.set()
        group = await group_of(loop, 5)
    assert group.rollout_rewards == [None] * 5


async def test_trl_counts_no_turns_of_a_rollout_that_could_not_be_scored() -> None:
    with rollout_loop(LOST, GOOD) as loop:
        group = await group_of(loop, 1)
        assert (group.rollout_rewards, group.completions_ids) == ([None], [[]])
        assert not [name for name in pushed(loop) if "turns" in name]
        await group_of(loop, 1)
        assert [name for name in pushed(loop) if "turns" in name]


async def test_a_rollout_that_scores_starts_the_count_again() -> None:
    with rollout_loop(LOST, LOST, BAD, LOST, LOST, GOOD, stop_after=3) as loop:
        group = await group_of(loop, 6)
    assert group.rollout_rewards == [None, None, 0.0, None, None, pytest.approx(1.1)]


@pytest.mark.parametrize(
    ("lora", "version", "told"),
    [("trl-policy", 3, (3, "trl-policy-v3")), ("trl-policy", 0, (0, "")), (None, 3, (3, ""))],
)
def test_a_rollout_asks_for_the_adapter_of_the_version_that_is_current_when_it_starts(
    lora: str | None, version: int, told: tuple[int, str]
) -> None:
    with rollout_loop(GOOD, lora_name=lora, version=version) as loop:
        assert loop._sessions.policy() == told
        loop._model_version_value.value = 9
        assert loop._sessions.policy() == (9, "trl-policy-v9" if lora else "")


@pytest.mark.parametrize("start", [0, 2, 7])
def test_groups_go_on_counting_where_a_run_is_resumed(start: int) -> None:
    with rollout_loop(GOOD, dataset_start_index=start) as loop:
        groups = [group for group, _ in itertools.islice(loop._repeat_iterator(), 8)]
    assert groups == [start + step for step in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_a_sampling_that_training_would_replace_is_refused_with_what_to_set() -> None:
    with pytest.raises(UsageError, match=r"training\.max_completion_length"):
        HarborRolloutWorker(harness_session_factory=partial(FakeServer, [GOOD], sampling={"max_tokens": 9}))
