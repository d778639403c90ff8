"""From the flags of `rollout` to a batch: tasks, layers, a gateway with an engine behind it, and a report."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from harbor_env.batch import Course, Job, Recover, plan_jobs, run_batch
from harbor_env.batch_folder import agree, claimed
from harbor_env.cli.interrupting import interruptible
from harbor_env.cli.order import Order
from harbor_env.cli.report import Report
from harbor_env.cli.way import check_way
from harbor_env.engine_contact import check_listening, reached
from harbor_env.errors import UsageError
from harbor_env.exposing import Door, find_exposer
from harbor_env.harnesses import find
from harbor_env.harnesses.baking import bake_harness
from harbor_env.outcome import RolloutResult
from harbor_env.rollout import GatewayAddress, RolloutSpec
from harbor_env.sandboxes.backends import check_reach
from harbor_env.serving_gateway import serving_gateway
from harbor_env.tasks import Task, check_secrets, load_dataset

ENDED = 0
NOTHING_SCORED = 3
PAUSE = 2.0
"""Seconds before the first retry of a rollout, doubled for each further one and spread by chance."""


async def run(order: Order) -> int:
    """Run the batch; returns the exit status: 0 where it ended, 3 where none of its rollouts could be scored."""
    order.check()
    revision, tasks = _chosen_tasks(order)
    if order.engine.llm_url and not order.wait_for_engine:
        await check_listening(order.engine.llm_url)
    jobs = plan_jobs([(number, task.path) for number, task in tasks], order.harnesses, order.attempts, order.rotate)
    by_path = {task.path: task for _, task in tasks}
    out = order.out
    report = Report(out, order.sandbox, as_json=order.as_json, concurrency=order.concurrency, again=order.again)
    with claimed(out), report, interruptible(report.say, report.abandon):
        agree(out, order.settings(revision), anyway=order.resume_anyway)
        layers = await _layers(order, report)
        adapters = asyncio.ensure_future(asyncio.to_thread(_load_adapters, order.harnesses))
        async with serving_gateway(order.engine, out, report.say) as opened, AsyncExitStack() as ways:
            inside = await adapters
            address = opened
            if not address.level:
                address = await reached(order.engine, opened, report.say, patience=order.wait_for_engine)
            agree(out, order.settings(revision, address), anyway=order.resume_anyway)
            report.gateway(address)
            address = await ways.enter_async_context(exposed(order, address))
            if inside:
                check_reach(order.sandbox, address.public or address.url)
            report.plan(jobs)

            def spec(job: Job) -> RolloutSpec:
                return order.spec(job, by_path[job.task], address, out, layers)

            course = Course(order.concurrency, order.retries, _recovery(order, address, report), order.resume)
            beating = asyncio.create_task(report.beat())
            try:
                results = await run_batch(jobs, spec, out, report, course)
            finally:
                beating.cancel()
    return ENDED if any(result.ok for result in results) else NOTHING_SCORED


@asynccontextmanager
async def exposed(order: Order, address: GatewayAddress) -> AsyncIterator[GatewayAddress]:
    """The gateway as the batch's sandboxes reach it. UsageError: it does not answer at the address it was given."""
    if order.sandbox == "local" or not order.expose:
        yield address
        return
    parts = urlsplit(address.url)
    door = Door(parts.hostname or "127.0.0.1", parts.port or 80, order.out / "exposed")
    async with find_exposer(order.expose)(door) as url:
        await check_way(url, address)
        yield replace(address, public=url)


def default_out(out: Path | None) -> Path:
    """The batch's folder as an absolute path; a new one where none was named."""
    return (out or Path("rollouts") / datetime.now().strftime("%Y%m%d-%H%M%S")).absolute()


def _recovery(order: Order, address: GatewayAddress, report: Report) -> Recover:
    """Between two tries: a pause, and after a failure of the engine a wait for it, where one was asked for."""

    async def recover(result: RolloutResult, retry: int) -> None:
        await asyncio.sleep(PAUSE * 2 ** (retry - 1) * random.uniform(0.5, 1.5))
        if result.reason is not None and result.reason.kind == "engine" and order.wait_for_engine:
            try:
                await reached(order.engine, address, report.say, patience=order.wait_for_engine)
            except UsageError as error:  # the next try finds the same, and that is recorded
                report.say(str(error))

    return recover


def _chosen_tasks(order: Order) -> tuple[str, list[tuple[int, Task]]]:
    """The dataset's revision, and the tasks with their places in it."""
    dataset = load_dataset(order.dataset, split=order.split or None)
    if order.tasks:
        chosen = [dataset.find(name) for name in order.tasks]
    else:
        first = dataset[order.first]  # a TaskError here says which indices there are
        chosen = [first, *dataset[order.first + 1 : order.first + order.count]]
    check_secrets(chosen, os.environ)
    numbers = {task.name: number for number, task in enumerate(dataset)}
    return dataset.revision, [(numbers[task.name], task) for task in chosen]


def _load_adapters(harnesses: tuple[str, ...]) -> bool:
    """Import Harbor while the gateway starts: both take seconds. Whether any harness runs inside its sandbox."""
    from harbor_env.harnesses.wiring import load_adapter

    inside = [load_adapter(find(name)) for name in harnesses]
    return any(inside)


async def _layers(order: Order, report: Report) -> dict[str, tuple[Path, ...]]:
    """A baked layer per harness where the sandbox can mount one; baked now if it is not there."""
    layers: dict[str, tuple[Path, ...]] = {}
    for name in order.harnesses:
        harness = find(name)
        bakes = order.sandbox == "local" and harness.bake is not None
        layers[name] = (await bake_harness(harness, report.say),) if bakes else ()
    return layers
