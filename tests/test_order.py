"""The flags of a batch: what they pin, what they limit, and what makes two batches comparable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harbor_env.batch import Job
from harbor_env.cli.order import Order
from harbor_env.errors import UsageError
from harbor_env.rollout import GatewayAddress
from harbor_env.serving_gateway import EngineFlags
from harbor_env.tasks import Task

ORDER = Order(EngineFlags(llm_url="http://127.0.0.1:8000"), ("mini-swe-agent",), Path("/out"))
TASK = Task("t", Path("/d/t"), "Do it.", agent_timeout=100.0, verifier_timeout=10.0)
ADDRESS = GatewayAddress("http://127.0.0.1:1", model="m", level="tokens")


def test_training_pins_temperature_one_and_evaluation_what_was_given() -> None:
    assert ORDER.sampling == {"temperature": 1.0}
    assert replace(ORDER, purpose="eval").sampling == {}
    given = replace(ORDER, purpose="eval", temperature=0.0, top_p=0.9, max_reply_tokens=1)
    assert given.sampling == {"temperature": 0.0, "top_p": 0.9, "max_tokens": 1}


def test_limits_of_zero_are_none() -> None:
    assert ORDER.budget == {}
    assert replace(ORDER, max_calls=3, max_seconds=1.5).budget == {"max_calls": 3, "max_seconds": 1.5}


def test_attempts_have_consecutive_seeds() -> None:
    order = replace(ORDER, seed=7)
    jobs = [Job(f"j{attempt}", 0, TASK.path, "mini-swe-agent", attempt) for attempt in range(2)]
    specs = [order.spec(job, TASK, ADDRESS, order.out, {"mini-swe-agent": ()}) for job in jobs]
    assert [spec.sampling["seed"] for spec in specs] == [7, 8]


def test_a_rollout_has_the_time_of_its_parts_unless_a_flag_says_otherwise() -> None:
    assert limit(ORDER) == 100 + 10 + 1800
    assert limit(replace(ORDER, agent_timeout=5)) == 5 + 10 + 1800
    assert limit(replace(ORDER, timeout=9)) == 9
    assert limit(ORDER, Task("t", TASK.path, "")) == 3600 + 900 + 1800


def limit(order: Order, task: Task = TASK) -> float | None:
    return order.spec(Job("j", 0, task.path, "pi", 0), task, ADDRESS, order.out, {"pi": ()}).timeout


def test_where_and_how_fast_a_batch_runs_is_no_setting() -> None:
    same = replace(ORDER, engine=EngineFlags(llm_url="http://other:1"), count=9, attempts=4, concurrency=8, retries=5)
    assert same.settings("", ADDRESS) == ORDER.settings("", ADDRESS)


def test_what_only_the_engine_knows_is_unknown_before_it_was_asked() -> None:
    assert {name for name, value in ORDER.settings("").items() if value is None} == {"model", "level", "revision"}


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h", "http://", "http://h:x", "http://a b"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--llm-url"):
        replace(ORDER, engine=EngineFlags(llm_url=url)).check()
