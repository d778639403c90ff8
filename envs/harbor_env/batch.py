"""Many rollouts, some at a time: planned by name, recorded as each ends, resumed by skipping what is settled.

Invariant: a result is on disk before the next rollout takes its place; a cancelled batch is recorded as far as it got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harbor_env.outcome import Reason
from harbor_env.records import append_result, read_results, settled, write_rows
from harbor_env.rollout import RolloutResult, RolloutSpec, run_rollout


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout of a batch. `number` is the task's place in its dataset; `name` is stable over reruns."""

    name: str
    number: int
    task: Path
    harness: str
    attempt: int


class Watcher(Protocol):
    """Told of a batch as it goes."""

    def skipped(self, job: Job, result: RolloutResult) -> None: ...
    def started(self, job: Job) -> None: ...
    def phase(self, job: Job, phase: str) -> None: ...
    def ended(self, job: Job, result: RolloutResult) -> None: ...


def plan_jobs(tasks: Sequence[tuple[int, Path]], harnesses: Sequence[str], attempts: int) -> list[Job]:
    """`attempts` rollouts of every task; the harness rotates from task to task, so that attempts of one compare."""
    jobs = []
    for turn, (number, task) in enumerate(tasks):
        harness = harnesses[turn % len(harnesses)]
        short = harness.rpartition(":")[2]
        for attempt in range(attempts):
            jobs.append(Job(f"{number:04d}-{task.name}-{short}-{attempt}", number, task, harness, attempt))
    return jobs


async def run_batch(
    jobs: Sequence[Job],
    make_spec: Callable[[Job], RolloutSpec],
    out: Path,
    watcher: Watcher,
    *,
    concurrency: int = 1,
    resume: bool = True,
) -> list[RolloutResult]:
    """Run the jobs that are not settled in `out`; returns every job's result, in order.

    On cancellation the running rollouts are ended and recorded as cancelled, rows are written, then it is re-raised.
    """
    known = await asyncio.to_thread(read_results, out) if resume else {}
    results: dict[str, RolloutResult] = {}
    waiting = []
    for job in jobs:
        if job.name in known and settled(known[job.name]):
            results[job.name] = known[job.name]
            watcher.skipped(job, known[job.name])
        else:
            waiting.append(job)
    queue = iter(waiting)

    async def work() -> None:
        for job in queue:
            results[job.name] = await _run_job(job, make_spec(job), out, watcher)

    workers = [asyncio.create_task(work()) for _ in range(min(concurrency, len(waiting)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        write_rows(out, (results[job.name] for job in jobs if job.name in results))
    return [results[job.name] for job in jobs]


async def _run_job(job: Job, spec: RolloutSpec, out: Path, watcher: Watcher) -> RolloutResult:
    watcher.started(job)
    try:
        result = await run_rollout(spec, lambda phase: watcher.phase(job, phase))
    except asyncio.CancelledError:
        result = _cancelled(job, spec)
        append_result(out, result)
        watcher.ended(job, result)
        raise
    append_result(out, result)
    watcher.ended(job, result)
    return result


def _cancelled(job: Job, spec: RolloutSpec) -> RolloutResult:
    reason = Reason("cancelled", "Interrupted; the same command runs it again.")
    return RolloutResult(job.name, job.task.name, job.harness, spec.sandbox, ok=False, reward=None, reason=reason)
