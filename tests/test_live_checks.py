"""What live runs assert of rows can fail: a token lost or trained twice, behind another prompt, with a wrong mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harbor_env.gateway.engines.scripted_tokens import synthetic_logprobs
from harbor_env.outcome import RolloutResult
from tests.live.logged_engine import Asked
from tests.live.rollouts import Count, Ran, count

FIRST = Asked("plain", (1, 2), (3, 4))
SECOND = Asked("plain", (1, 2, 3, 4, 5), (6,))
FAILED = Asked("plain", (1, 2), error="engine_error")


def row(ids: list[int], mask: list[int]) -> dict[str, Any]:
    logprobs = [value if one else 0.0 for value, one in zip(synthetic_logprobs(ids), mask, strict=True)]
    return {"input_ids": ids, "loss_mask": mask, "logprobs": logprobs}


def good() -> Ran:
    turns = [{"role": "main", "sampled_ids": list(asked.sampled)} for asked in (FIRST, SECOND)]
    result = RolloutResult("r", "t", "h", "local", True, 1.0)
    return Ran(result, turns, [row([1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 0, 1])], [FAILED, FIRST, SECOND])


def lose_a_turn(ran: Ran) -> None:
    ran.turns.pop()


def train_twice(ran: Ran) -> None:
    ran.rows.append(row([1, 2, 3, 4], [0, 0, 1, 1]))


def train_a_prompt(ran: Ran) -> None:
    ran.rows[0]["loss_mask"][4] = 1


def invent_a_log_probability(ran: Ran) -> None:
    ran.rows[0]["logprobs"][3] = -0.5


def leave_a_log_probability_in_the_prompt(ran: Ran) -> None:
    ran.rows[0]["logprobs"][0] = -0.5


def change_a_prompt(ran: Ran) -> None:
    ran.rows[0]["input_ids"][4] = 9


def encode_a_reply_again(ran: Ran) -> None:
    ran.rows[0]["input_ids"][3] = 9


def test_every_generation_is_found_behind_its_prompt() -> None:
    ran = good()
    assert count(ran) == Count(sampled=3, trained=3, rows=1, untrained=0)
    assert ran.engine_errors == ["engine_error"]


def test_a_reply_that_is_not_trained_is_counted_as_sampled() -> None:
    ran = good()
    ran.rows[0] = row([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 1])
    counted = count(ran)
    assert counted == Count(sampled=3, trained=1, rows=1, untrained=1)
    assert counted.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "spoil",
    [
        lose_a_turn,
        train_twice,
        train_a_prompt,
        invent_a_log_probability,
        leave_a_log_probability_in_the_prompt,
        change_a_prompt,
        encode_a_reply_again,
    ],
)
def test_what_is_wrong_with_a_row_fails_the_check(spoil: Callable[[Ran], None]) -> None:
    ran = good()
    spoil(ran)
    with pytest.raises(AssertionError):
        count(ran)
