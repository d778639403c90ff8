"""Importance ratios by harness and by row, from the batch as it is packed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from trl.experimental.async_grpo.packing import TreeRow

from trl_integration.trainer import NO_ROW, HarnessCollator, extremes, ratios
from trl_integration.worker import HARNESS

CHANGED = 0.7
"""By how much one token's log probability differs between trainer and engine, in the tests in which one does."""


def sample(ids: list[int], trained: int, harness: int, group: int = 0) -> dict[str, Any]:
    """A row whose last `trained` tokens are trained; a token's log probability follows from its id."""
    context = len(ids) - trained
    return {
        "input_ids": np.array(ids),
        "completion_mask": np.array([0] * context + [1] * trained),
        "old_log_probs": np.array([0.0] * context + [-token / 10 for token in ids[context:]], dtype=np.float32),
        "advantage": 1.0,
        "group_id": group,
        "metrics": {HARNESS: float(harness), "reward": 0.5},
    }


def packed(*rows: dict[str, Any]) -> TreeRow:
    row = TreeRow()
    for one in rows:
        row.add(one)
    return row


def collated(rows: list[TreeRow], metrics: dict[str, list[Any]] | None = None) -> dict[str, Any]:
    sink = metrics if metrics is not None else defaultdict(list)
    return dict(HarnessCollator(pad_token_id=0, num_processes=len(rows), metrics=sink).torch_call([rows]))


def as_the_engine(batch: dict[str, Any]) -> torch.Tensor:
    """Log probabilities of every packed position that agree with the engine's."""
    return torch.where(batch["shift_labels"] >= 0, -batch["shift_labels"] / 10, 0.0)


@pytest.fixture
def batch() -> dict[str, Any]:
    """Four rows, the first two of which share a prefix: harness 1 and 0, then two of harness 1."""
    return collated(
        [
            packed(
                sample([1, 2, 3, 4], 2, harness=1),
                sample([1, 2, 5], 1, harness=0),
                sample([7, 8, 9, 6, 5], 3, harness=1, group=1),
                sample([7, 8, 4], 1, harness=1, group=1),
            )
        ]
    )


def told(row_max: float, row_min: float, token_log_max: float) -> dict[str, Any]:
    names = ("ratio/row_max", "ratio/row_min", "ratio/token_log_max")
    return {name: pytest.approx(value) for name, value in zip(names, (row_max, row_min, token_log_max), strict=True)}


def test_ratios_are_1_where_both_agree_and_counted_per_harness(batch: dict[str, Any]) -> None:
    per_harness, ends = ratios(as_the_engine(batch), batch, 3)
    torch.testing.assert_close(per_harness, torch.tensor([[1.0, 1.0], [6.0, 6.0], [0.0, 0.0]]))
    assert extremes(ends) == told(1.0, 1.0, 0.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_changed_probability_shows_in_its_row_and_its_harness_alone(batch: dict[str, Any], sign: int) -> None:
    log_probs = as_the_engine(batch)
    log_probs[batch["shift_labels"] == 6] += sign * CHANGED  # the middle one of the third row's three trained tokens
    per_harness, ends = ratios(log_probs, batch, 2)
    grown = np.exp(sign * CHANGED) - 1
    rows = (1.0, 1.0 + grown / 3)
    assert extremes(ends) == told(max(rows), min(rows), CHANGED)
    assert per_harness.tolist() == [pytest.approx([1.0, 1.0]), pytest.approx([6.0 + grown, 6.0])]


def test_a_row_whose_mean_is_1_still_tells_that_its_tokens_are_not_the_engine_s() -> None:
    batch = collated([packed(sample([1, 2, 3], 2, harness=0))])
    log_probs = as_the_engine(batch)
    log_probs[batch["shift_labels"] == 2] += np.log(1.5)
    log_probs[batch["shift_labels"] == 3] += np.log(0.5)
    _, ends = ratios(log_probs, batch, 1)
    assert extremes(ends) == told(1.0, 1.0, np.log(2))


def test_a_row_of_which_nothing_is_trained_has_no_mean() -> None:
    batch = collated([packed(sample([1, 2, 3], 1, harness=0), sample([1, 2, 4], 0, harness=1))])
    per_harness, ends = ratios(as_the_engine(batch), batch, 2)
    assert per_harness.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert extremes(ends) == told(1.0, 1.0, 0.0)


def test_the_farthest_of_all_processes_is_told_also_where_one_got_nothing_to_train() -> None:
    ends = []
    for changed in (CHANGED, -CHANGED):
        batch = collated([packed(sample([1, 2], 1, harness=0))])
        ends.append(ratios(as_the_engine(batch) + changed, batch, 1)[1])
    context = collated([packed(sample([1, 2], 0, harness=0))])
    idle = ratios(as_the_engine(context), context, 1)[1]
    both = told(np.exp(CHANGED), np.exp(-CHANGED), CHANGED)
    assert extremes(torch.cat([*ends, idle])) == extremes(torch.cat([idle, *reversed(ends)])) == both
    assert extremes(torch.cat([idle, idle])) == {}


def test_the_harness_s_number_travels_beside_the_batch_and_is_no_metric() -> None:
    metrics: dict[str, list[Any]] = defaultdict(list)
    batch = collated(
        [packed(sample([1, 2], 1, 2), sample([3, 4], 1, 0)), packed(sample([5, 6], 1, 1, group=1))], metrics
    )
    assert batch[HARNESS].tolist() == [[2, 0], [1, NO_ROW]]
    assert HARNESS not in metrics
    assert metrics["reward"] == [0.5]


def test_a_row_that_lost_its_harness_s_number_is_booked_on_none() -> None:
    lost = sample([1, 2], 1, harness=0)
    del lost["metrics"][HARNESS]
    with pytest.raises(KeyError, match=HARNESS):
        collated([packed(sample([3, 4], 1, harness=1), lost)])


def test_each_process_counts_the_rows_it_got() -> None:
    both = collated([packed(sample([1, 2], 1, 2), sample([3, 4], 1, 0)), packed(sample([5, 6], 1, 1, group=1))])
    second = {name: values[1:] for name, values in both.items()}
    per_harness, ends = ratios(as_the_engine(second), second, 3)
    assert per_harness.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    assert extremes(ends) == told(1.0, 1.0, 0.0)
