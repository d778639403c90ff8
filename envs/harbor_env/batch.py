"""Many rollouts, some at a time: planned by name, recorded as each ends, resumed by skipping what is settled.

Invariant: a result is on disk before the next rollout takes its place; a cancelled batch is recorded as far as it got.
Only failures of the infrastructure are tried again, each time in a session of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from harbor_env.gateway.stored_export import public_id
from harbor_env.gateway_client import OpenSession
from harbor_env.outcome import Reason, RolloutResult
from harbor_env.records import append_result, read_results, settled, write_results, write_rows
from harbor_env.results_table import write_table
from harbor_env.rollout import RolloutSpec, run_rollout

Rotation = Literal["task", "attempt", "every"]
"""Several harnesses take turns from task to task or from attempt to attempt, or every one of them gets every task."""


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout of a batch. `number` is the task's place in its dataset; `name` is stable over reruns."""

    name: str
    number: int
    task: Path
    harness: str
    attempt: int


class Watcher(Protocol):
    """Told of a batch as it goes. `tried` hears of a try that failed and is followed by another."""

    def skipped(self, job: Job, result: RolloutResult) -> None: ...
    def started(self, job: Job) -> None: ...
    def phase(self, job: Job, phase: str) -> None: ...
    def tried(self, job: Job, result: RolloutResult) -> None: ...
    def ended(self, job: Job, result: RolloutResult) -> None: ...


Recover = Callable[[RolloutResult, int], Awaitable[None]]
"""Awaited between a failed try and the next, which is the n-th retry, counted from 1."""


async def at_once(result: RolloutResult, retry: int) -> None:
    """No pause between tries."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a batch is run: rollouts at a time, tries after the first, what is awaited between two tries, and whether
    what an earlier run settled stands.
    """

    concurrency: int = 1
    retries: int = 0
    recover: Recover = at_once
    resume: bool = True


def plan_jobs(
    tasks: Sequence[tuple[int, Path]], harnesses: Sequence[str], attempts: int, rotation: Rotation = "task"
) -> list[Job]:
    """`attempts` rollouts of every task (with `every`: of every task and harness), task by task."""
    jobs = []
    for turn, (number, task) in enumerate(tasks):
        for harness, attempt in _shared(harnesses, attempts, rotation, turn):
            short = harness.rpartition(":")[2]
            jobs.append(Job(f"{number:04d}-{task.name}-{short}-{attempt}", number, task, harness, attempt))
    return jobs


def _shared(harnesses: Sequence[str], attempts: int, rotation: Rotation, turn: int) -> Iterator[tuple[str, int]]:
    if rotation == "every":
        yield from ((harness, attempt) for harness in harnesses for attempt in range(attempts))
        return
    for attempt in range(attempts):
        place = turn if rotation == "task" else turn + attempt
        yield harnesses[place % len(harnesses)], attempt


async def run_batch(
    jobs: Sequence[Job],
    make_spec: Callable[[Job], RolloutSpec],
    out: Path,
    watcher: Watcher,
    course: Course = Course(),
) -> list[RolloutResult]:
    """Run the jobs that are not settled in `out`; returns every job's result, in order.

    On cancellation the running rollouts are ended and recorded as cancelled, what is known is written, then it is
    re-raised.
    """
    known = await asyncio.to_thread(read_results, out)
    results: dict[str, RolloutResult] = {}
    waiting = []
    for job in jobs:
        before = known.get(job.name) if course.resume else None
        if before is not None and settled(before):
            results[job.name] = before
            watcher.skipped(job, before)
        else:
            waiting.append((job, _failures(before)))
    queue = iter(waiting)

    async def work() -> None:
        for job, earlier in queue:
            results[job.name] = await _run_job(job, make_spec(job), watcher, course, earlier)

    workers = [asyncio.create_task(work()) for _ in range(min(course.concurrency, len(waiting)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        _write_all(out, jobs)
    return [results[job.name] for job in jobs]


async def _run_job(
    job: Job, spec: RolloutSpec, watcher: Watcher, course: Course, earlier: tuple[Reason, ...]
) -> RolloutResult:
    """One rollout, tried until it is settled or its tries are used up; every try is recorded as it ends."""
    sessions: list[OpenSession] = []

    async def attempt() -> RolloutResult:
        result = await run_rollout(spec, lambda phase: watcher.phase(job, phase), sessions.append)
        result = replace(result, tries=len(earlier) + 1, earlier=earlier)
        append_result(spec.out, result)
        return result

    watcher.started(job)
    try:
        result = await attempt()
        for retry in range(1, course.retries + 1):
            if settled(result):
                break
            watcher.tried(job, result)
            earlier = _failures(result)
            sessions.clear()
            await course.recover(result, retry)
            result = await attempt()
    except asyncio.CancelledError:
        result = _cancelled(job, spec, sessions, earlier)
        append_result(spec.out, result)
        watcher.ended(job, result)
        raise
    watcher.ended(job, result)
    return result


def _failures(before: RolloutResult | None) -> tuple[Reason, ...]:
    """Why every try so far came to nothing."""
    return (*before.earlier, before.reason) if before is not None and before.reason is not None else ()


def _cancelled(
    job: Job, spec: RolloutSpec, sessions: Sequence[OpenSession], earlier: tuple[Reason, ...]
) -> RolloutResult:
    return RolloutResult(
        job.name,
        job.task.name,
        job.harness,
        spec.sandbox,
        ok=False,
        reward=None,
        reason=Reason("cancelled", "Interrupted; the same command runs it again."),
        session=public_id(sessions[-1].id) if sessions else "",
        model=spec.gateway.model,
        tries=len(earlier) + 1,
        earlier=earlier,
    )


def _write_all(out: Path, jobs: Sequence[Job]) -> None:
    """All that is recorded, in the order it was planned; rollouts of other plans in the same folder come after."""
    recorded = read_results(out)
    planned = [job.name for job in jobs if job.name in recorded]
    ordered = [recorded[name] for name in dict.fromkeys([*planned, *recorded])]
    write_results(out, ordered)
    write_rows(out, ordered)
    write_table(out, ordered)
