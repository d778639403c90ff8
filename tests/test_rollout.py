"""A rollout is a score with its trace, or the reason why there is none; nothing it leaves holds its session's secrets.

Harbor's trial, the local sandbox and the gateway are the real ones; the harness is a tiny one and the engine a fake.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from harbor_env.errors import EngineError
from harbor_env.gateway.types import Message, ToolCall
from harbor_env.gateway_client import OpenSession
from harbor_env.rollout import GatewayAddress, RolloutSpec, run_rollout
from tests.serving import Served, serving
from tests.tiny_harness import write_answer, write_task
from tests.waiting import until
from trl_integration.compare import Sample, samples_of

WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
KEY = re.compile(rb"sk-[0-9a-f]{20}")
DONE = Message("assistant", "Done.")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "data") as running:
        running.engine.answers[:] = [WRITES, DONE]
        yield running


@pytest.fixture
def spec(served: Served, tmp_path: Path) -> RolloutSpec:
    task = write_task(tmp_path / "write-42")
    gateway = GatewayAddress(served.url, model="m", level="tokens")
    return RolloutSpec("r1", task, "tests.tiny_harness:TINY", gateway, tmp_path / "out")


async def test_a_solved_task_is_a_reward_a_trace_and_rows(spec: RolloutSpec) -> None:
    phases: list[str] = []
    result = await run_rollout(spec, phases.append)
    assert (result.ok, result.reward, result.reason) == (True, 1.0, None), result
    assert phases == ["session", "sandbox", "agent", "verifier", "capture"]
    wanted = {"turns": 2, "roots": 1, "rows": 1, "tool_calls": 1}
    assert {key: result.counts[key] for key in wanted} == wanted
    assert samples_of([asdict(result)]) == [Sample("r1", spec.harness, 1.0, 1, result.counts["sampled_tokens"])]
    trace = json.loads((spec.out / result.trace).read_bytes())
    assert [turn["reply"]["content"] for turn in trace["turns"]] == ["Writing.", "Done."]
    assert trace["metadata"]["rollout"] == "r1"
    [row] = [json.loads(line) for line in (spec.out / result.rows).read_text().splitlines()]
    assert sum(row["loss_mask"]) == result.counts["trainable_tokens"] == result.counts["sampled_tokens"]
    assert result.level == "tokens"
    assert set(result.seconds) == {"sandbox", "setup", "agent", "verifier", "total"}


async def test_an_unsolved_task_is_a_zero_and_not_a_failure(spec: RolloutSpec, served: Served) -> None:
    served.engine.answers[:] = [DONE]
    result = await run_rollout(spec)
    assert (result.ok, result.reward) == (True, 0.0)


async def test_no_file_of_a_rollout_holds_the_key_of_its_session(spec: RolloutSpec) -> None:
    await run_rollout(spec)
    printed = (spec.out / "logs/r1/agent/tiny.txt").read_text()
    assert printed.startswith("key ")
    assert not [path for path in spec.out.rglob("*") if path.is_file() and KEY.search(path.read_bytes())]


async def test_the_reason_of_a_failure_that_quotes_the_command_holds_no_key(spec: RolloutSpec, tmp_path: Path) -> None:
    ungraded = write_task(tmp_path / "other", reward="")
    result = await run_rollout(replace(spec, task=ungraded, agent_kwargs={"habit": "fail"}))
    assert result.reason is not None
    assert "Command failed" in result.reason.sentence
    assert not KEY.search(result.reason.sentence.encode())


async def test_what_nobody_foresaw_is_logged_without_the_key(
    spec: RolloutSpec, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(session: OpenSession) -> None:
        raise ZeroDivisionError(f"{session.url} {session.key}")

    result = await run_rollout(spec, opened=fail)
    assert result.reason is not None
    assert "ZeroDivisionError" in caplog.text
    assert KEY.search((caplog.text + result.reason.sentence).encode()) is None


async def test_the_budget_and_the_sampling_of_the_spec_are_the_session_s(spec: RolloutSpec, served: Served) -> None:
    await run_rollout(replace(spec, budget={"max_calls": 1}, sampling={"temperature": 0.5}))
    assert [request.sampling.temperature for request in served.engine.requests] == [0.5]


async def test_a_harness_out_of_time_keeps_the_reward_and_is_flagged(spec: RolloutSpec) -> None:
    result = await run_rollout(replace(spec, agent_timeout=5.0, agent_kwargs={"habit": "hang"}))
    assert (result.ok, result.reward, result.flags) == (True, 1.0, ("timeout",)), result


async def test_a_rollout_past_its_own_time_is_ended_and_blamed_on_nobody_s_policy(spec: RolloutSpec) -> None:
    result = await run_rollout(replace(spec, timeout=1.0, agent_kwargs={"habit": "hang"}))
    assert result.reason is not None
    assert (result.ok, result.reason.kind) == (False, "sandbox")
    assert "did not end within 1 s" in result.reason.sentence
    assert result.session


async def test_a_result_names_its_session_as_its_exports_do(spec: RolloutSpec) -> None:
    result = await run_rollout(spec)
    [row] = [json.loads(line) for line in (spec.out / result.rows).read_text().splitlines()]
    assert (result.session, result.model) == (row["session_id"], "m")
    assert result.session == json.loads((spec.out / result.trace).read_bytes())["session_id"]


async def test_a_harness_that_makes_no_call_is_a_capture_failure(spec: RolloutSpec) -> None:
    result = await run_rollout(replace(spec, agent_kwargs={"habit": "silent"}))
    assert result.reason is not None
    assert (result.ok, result.reward, result.reason.kind) == (False, None, "capture")
    assert result.trace == ""


async def test_a_harness_that_exits_badly_keeps_its_reward_and_says_how_it_ended(spec: RolloutSpec) -> None:
    result = await run_rollout(replace(spec, agent_kwargs={"habit": "fail"}))
    assert (result.ok, result.reward, result.flags) == (True, 1.0, ("agent_error",))


async def test_an_engine_that_fails_all_along_is_an_engine_failure(spec: RolloutSpec, served: Served) -> None:
    served.engine.answers[:] = [EngineError("engine_down", "gone")] * 9
    result = await run_rollout(spec)
    assert result.reason is not None
    assert (result.ok, result.reward, result.reason.kind) == (False, None, "engine"), result.reason
    assert result.reason.sentence == "No model call succeeded: engine_down: gone"
    assert "HTTP Error 503" in result.log_tail


@pytest.mark.parametrize(
    ("task", "kind", "sentence"),
    [
        ({"reward": ""}, "verifier", "no reward"),
        ({"reward": '{"speed": 1, "accuracy": %s}'}, "verifier", "several rewards (accuracy, speed)"),
        ({"reward": '{"reward": NaN}'}, "verifier", "NaN"),
    ],
)
async def test_a_reward_that_cannot_be_read_is_a_verifier_failure(
    spec: RolloutSpec, tmp_path: Path, task: dict[str, Any], kind: str, sentence: str
) -> None:
    result = await run_rollout(replace(spec, task=write_task(tmp_path / "other", **task)))
    assert result.reason is not None
    assert (result.ok, result.reward, result.reason.kind) == (False, None, kind), result.reason
    assert sentence.lower() in result.reason.sentence.lower()


async def test_reward_txt_is_read_where_there_is_no_reward_json(spec: RolloutSpec, tmp_path: Path) -> None:
    task = write_task(tmp_path / "other", reward="%s", name="reward.txt")
    assert (await run_rollout(replace(spec, task=task))).rewards == {"reward": 1.0}


async def test_the_reward_key_chooses_among_several(spec: RolloutSpec, tmp_path: Path) -> None:
    task = write_task(tmp_path / "other", reward='{"speed": 0.5, "accuracy": %s}')
    result = await run_rollout(replace(spec, task=task, reward_key="speed"))
    assert (result.reward, result.rewards) == (0.5, {"speed": 0.5, "accuracy": 1.0})


async def test_a_gateway_that_is_not_there_is_told_and_nothing_runs(spec: RolloutSpec) -> None:
    result = await run_rollout(replace(spec, gateway=GatewayAddress("http://127.0.0.1:9")))
    assert result.reason is not None
    assert (result.reason.kind, "does not answer" in result.reason.sentence) == ("capture", True)


async def test_a_folder_that_is_no_task_is_a_task_failure(spec: RolloutSpec, tmp_path: Path) -> None:
    result = await run_rollout(replace(spec, task=tmp_path / "nowhere"))
    assert result.reason is not None
    assert result.reason.kind == "task"


async def test_an_unknown_sandbox_is_a_task_failure_that_names_the_known_ones(spec: RolloutSpec) -> None:
    result = await run_rollout(replace(spec, sandbox="nowhere"))
    assert result.reason is not None
    assert "no sandbox 'nowhere'" in result.reason.sentence


async def test_an_image_that_cannot_be_built_is_a_sandbox_failure(spec: RolloutSpec, tmp_path: Path) -> None:
    task = write_task(tmp_path / "broken")
    (task / "environment/Dockerfile").write_text("FROM python:3.12-slim\nRUN exit 7\n")
    result = await run_rollout(replace(spec, task=task))
    assert result.reason is not None
    assert result.reason.kind == "sandbox"


async def test_a_cancelled_rollout_ends_its_sandbox_and_raises(spec: RolloutSpec, served: Served) -> None:
    served.engine.gate.clear()
    running = asyncio.create_task(run_rollout(spec))
    await served.engine.arrived.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: served.engine.aborted > 0)  # the gateway hears by itself that nobody waits any more
    assert served.engine.aborted == 1
