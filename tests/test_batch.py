"""Many rollouts: planned by name, recorded as each ends, resumed by skipping what is settled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harbor_env.atif import AtifCheck
from harbor_env.batch import Course, Job, Rotation, plan_jobs, run_batch
from harbor_env.errors import EngineError, UsageError
from harbor_env.exporting import Wanted, export_folder
from harbor_env.gateway.types import Message, ToolCall
from harbor_env.outcome import INFRASTRUCTURE, Reason, RolloutResult
from harbor_env.records import append_result, read_results, settled, write_rows
from harbor_env.rollout import GatewayAddress, RolloutSpec
from tests.serving import FakeEngine, Served, serving
from tests.tiny_harness import write_answer, write_task

WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
DONE = Message("assistant", "Done.")
RESULT = RolloutResult(
    *("r1", "t", "h", "local"),
    ok=True,
    reward=1.0,
    flags=("timeout",),
    atif=AtifCheck("match"),
    tries=2,
    earlier=(Reason("engine", "It was down."),),
    planted=("reward.txt",),
)


@dataclass
class Watching:
    """A fake watcher that remembers what it was told."""

    skipped_jobs: list[str] = field(default_factory=list)
    results: list[RolloutResult] = field(default_factory=list)
    tries: list[RolloutResult] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def skipped(self, job: Job, result: RolloutResult) -> None:
        self.skipped_jobs.append(job.name)

    def started(self, job: Job) -> None:
        self.begun.set()

    def phase(self, job: Job, phase: str) -> None: ...

    def tried(self, job: Job, result: RolloutResult) -> None:
        self.tries.append(result)

    def ended(self, job: Job, result: RolloutResult) -> None:
        self.results.append(result)


def test_harnesses_rotate_from_task_to_task_and_attempts_share_one() -> None:
    jobs = plan_jobs([(4, Path("/d/a")), (5, Path("/d/b"))], ["one", "pkg.mod:TWO"], attempts=2)
    assert [job.name for job in jobs] == ["0004-a-one-0", "0004-a-one-1", "0005-b-TWO-0", "0005-b-TWO-1"]
    assert [job.harness for job in jobs] == ["one", "one", "pkg.mod:TWO", "pkg.mod:TWO"]


@pytest.mark.parametrize(
    ("rotation", "harnesses"),
    [("task", "aabb"), ("attempt", "abba"), ("every", "aabbaabb")],
)
def test_a_rotation_says_which_harness_gets_which_attempt(rotation: Rotation, harnesses: str) -> None:
    jobs = plan_jobs([(0, Path("/d/x")), (1, Path("/d/y"))], ["a", "b"], attempts=2, rotation=rotation)
    assert "".join(job.harness for job in jobs) == harnesses
    assert len({job.name for job in jobs}) == len(jobs)


def test_a_result_reads_back_as_it_was_written_and_the_last_of_a_name_counts(tmp_path: Path) -> None:
    append_result(tmp_path, replace(RESULT, ok=False, reward=None, reason=Reason("engine", "down")))
    append_result(tmp_path, RESULT)
    assert read_results(tmp_path) == {"r1": RESULT}


def test_a_line_cut_by_a_crash_is_no_result(tmp_path: Path) -> None:
    append_result(tmp_path, RESULT)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"name": "r2", "task"')
    assert list(read_results(tmp_path)) == ["r1"]


@pytest.mark.parametrize("line", ['{"name": "r2", "of_another_version": 1}', "[1]", '{"name": "r2"}'])
def test_a_result_of_another_version_is_refused_and_not_lost_with_the_next_run(tmp_path: Path, line: str) -> None:
    append_result(tmp_path, RESULT)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UsageError, match="line 2"):
        read_results(tmp_path)


def test_a_line_after_one_cut_by_a_crash_is_whole(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"name": "r2", "task"')
    append_result(tmp_path, RESULT)
    append_result(tmp_path, replace(RESULT, name="r3"))
    assert list(read_results(tmp_path)) == ["r1", "r3"]


def test_only_failures_that_say_nothing_about_the_policy_are_run_again() -> None:
    kinds = ("sandbox", "agent", "verifier", "engine", "capture", "timeout", "cancelled", "task")
    failed = [replace(RESULT, ok=False, reward=None, reason=Reason(kind, "")) for kind in kinds]
    assert {result.reason.kind for result in failed if result.reason and not settled(result)} == INFRASTRUCTURE
    assert settled(RESULT)


def test_rows_are_those_of_scored_rollouts_with_their_reward(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"row": 0}\n{"row": 1}\n')
    scored = replace(RESULT, rows="a.jsonl")
    failed = replace(scored, name="r2", ok=False, reward=None, reason=Reason("agent", ""))
    assert write_rows(tmp_path, [scored, failed]) == 2
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["rollout"], row["reward"], row["row"]) for row in rows] == [("r1", 1.0, 0), ("r1", 1.0, 1)]


def specs(served: Served, out: Path) -> Callable[[Job], RolloutSpec]:
    gateway = GatewayAddress(served.url, model="m")
    return lambda job: RolloutSpec(job.name, job.task, job.harness, gateway, out)


async def test_a_batch_runs_some_at_a_time_and_a_second_run_finds_all_settled(tmp_path: Path) -> None:
    tasks = [(number, write_task(tmp_path / f"task-{number}")) for number in range(3)]
    jobs = plan_jobs(tasks, ["tests.tiny_harness:TINY"], attempts=1)
    out, first, second = tmp_path / "out", Watching(), Watching()
    async with serving(tmp_path / "data") as served:
        results = await run_batch(jobs, specs(served, out), out, first, Course(concurrency=2))
        assert [result.name for result in results] == [job.name for job in jobs]
        assert [result.reward for result in results] == [0.0, 0.0, 0.0]
        again = await run_batch(jobs, specs(served, out), out, second, Course(concurrency=2))
    assert (again, second.skipped_jobs, second.results) == (results, [job.name for job in jobs], [])
    assert len((out / "rows.jsonl").read_text().splitlines()) == 3


async def test_an_interrupted_batch_is_recorded_and_runs_what_is_missing_the_next_time(tmp_path: Path) -> None:
    jobs = plan_jobs([(0, write_task(tmp_path / "task"))], ["tests.tiny_harness:TINY"], attempts=2)
    out, watching = tmp_path / "out", Watching()
    async with serving(tmp_path / "data") as served:
        served.engine.gate.clear()
        batch = asyncio.create_task(run_batch(jobs, specs(served, out), out, watching))
        await served.engine.arrived.wait()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        assert [result.reason and result.reason.kind for result in read_results(out).values()] == ["cancelled"]
        served.engine.gate.set()
        results = await run_batch(jobs, specs(served, out), out, watching)
    assert [result.ok for result in results] == [True, True]


async def test_a_failure_of_the_infrastructure_is_tried_again_in_a_new_session_and_counts_once(
    tmp_path: Path,
) -> None:
    jobs = plan_jobs([(0, write_task(tmp_path / "task"))], ["tests.tiny_harness:TINY"], attempts=1)
    out, watching = tmp_path / "out", Watching()
    engine = FakeEngine([EngineError("engine_down", "gone"), WRITES, DONE])
    async with serving(out / "gateway", engine) as served:
        [result] = await run_batch(jobs, specs(served, out), out, watching, Course(retries=1))
    [first] = watching.tries
    assert (result.ok, result.reward, result.tries) == (True, 1.0, 2)
    assert result.earlier == (first.reason,)
    assert first.reason is not None
    assert first.reason.kind == "engine"
    assert "" != first.session != result.session
    assert watching.results == [result]
    assert len((out / "results.jsonl").read_text().splitlines()) == 1
    assert exports(out, Wanted()) == {result.session: 1.0}
    assert exports(out, Wanted((result.name,))) == {result.session: 1.0}
    assert exports(out, Wanted(everything=True)) == {result.session: 1.0}  # the first try has no turn to show
    with pytest.raises(UsageError, match="--all"):
        exports(out, Wanted(min_reward=1.5))


def exports(out: Path, wanted: Wanted) -> dict[str, float]:
    """The reward of each session the export of a batch's folder has."""
    file = out / "exported.jsonl"
    export_folder(out, wanted, "rows", file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["session_id"]: row["metadata"]["reward"] for row in rows}


async def test_tries_of_an_earlier_run_are_remembered_and_what_they_left_unsettled_is_run_again(tmp_path: Path) -> None:
    jobs = plan_jobs([(0, write_task(tmp_path / "task"))], ["tests.tiny_harness:TINY"], attempts=1)
    out = tmp_path / "out"
    engine = FakeEngine([EngineError("engine_down", "gone")] * 2)
    async with serving(tmp_path / "data", engine) as served:
        [failed] = await run_batch(jobs, specs(served, out), out, Watching(), Course(retries=1))
        [result] = await run_batch(jobs, specs(served, out), out, Watching(), Course(retries=1))
    assert (failed.ok, failed.tries, len(failed.earlier)) == (False, 2, 1)
    assert (result.ok, result.tries) == (True, 3)
    assert [reason.kind for reason in result.earlier] == ["engine", "engine"]


async def test_a_reward_of_zero_is_no_reason_to_try_again(tmp_path: Path) -> None:
    jobs = plan_jobs([(0, write_task(tmp_path / "task"))], ["tests.tiny_harness:TINY"], attempts=1)
    async with serving(tmp_path / "data") as served:
        [result] = await run_batch(
            jobs, specs(served, tmp_path / "out"), tmp_path / "out", Watching(), Course(retries=3)
        )
    assert (result.reward, result.tries) == (0.0, 1)
