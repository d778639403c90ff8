"""From the flags of `rollout` to a batch: tasks, layers, a gateway, and a report at the end."""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from harbor_env.batch import Job, plan_jobs, run_batch
from harbor_env.cli.report import Report
from harbor_env.errors import UsageError
from harbor_env.harnesses import find
from harbor_env.harnesses.baking import bake_harness
from harbor_env.rollout import GatewayAddress, RolloutSpec
from harbor_env.sandboxes import backend_of
from harbor_env.serving_gateway import EngineFlags, serving_gateway
from harbor_env.tasks import load_dataset

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Order:
    """The flags of one command. Zeros among limits mean none."""

    engine: EngineFlags
    harnesses: tuple[str, ...]
    dataset: str = "bundled"
    split: str = ""
    tasks: tuple[str, ...] = ()
    first: int = 0
    count: int = 1
    attempts: int = 1
    sandbox: str = "local"
    concurrency: int = 1
    temperature: float = 1.0
    seed: int | None = None
    max_calls: int = 0
    max_output_tokens: int = 0
    agent_timeout: float = 0
    reward_key: str = ""
    purpose: str = "train"
    out: Path | None = None
    resume: bool = True
    as_json: bool = False


async def run(order: Order) -> int:
    """Run the batch; returns the exit status: 0 where every rollout scored, else 1."""
    if order.purpose not in ("train", "eval"):
        raise UsageError(f"--purpose is train or eval, not {order.purpose!r}.")
    if not math.isfinite(order.temperature):
        raise UsageError(f"--temperature is a number, 1 for the model's own distribution; not {order.temperature}.")
    if not order.harnesses:
        raise UsageError("--harness names at least one harness, for example mini-swe-agent.")
    backend_of(order.sandbox)  # a name there is not is said before anything starts
    out = (order.out or Path("rollouts") / datetime.now().strftime("%Y%m%d-%H%M%S")).absolute()
    with Report(out, order.sandbox, as_json=order.as_json, concurrency=order.concurrency) as report:
        jobs = plan_jobs(_chosen_tasks(order), order.harnesses, order.attempts)
        layers = await _layers(order, report)
        adapters = asyncio.ensure_future(asyncio.to_thread(_load_adapters, order.harnesses))
        async with serving_gateway(order.engine, out, report.say) as address:
            await adapters
            report.gateway(address)

            def spec(job: Job) -> RolloutSpec:
                return _spec(order, job, address, out, layers)

            results = await run_batch(jobs, spec, out, report, concurrency=order.concurrency, resume=order.resume)
    return 0 if all(result.ok for result in results) else 1


async def ended_by_signal(work: Coroutine[Any, Any, int]) -> int:
    """Await `work`; SIGTERM and SIGINT cancel it once, so that what was done is written before the end."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return INTERRUPTED


def _chosen_tasks(order: Order) -> list[tuple[int, Path]]:
    dataset = load_dataset(order.dataset, split=order.split or None)
    if order.tasks:
        chosen = [dataset.find(name) for name in order.tasks]
    else:
        first = dataset[order.first]  # a TaskError here says which indices there are
        chosen = [first, *dataset[order.first + 1 : order.first + order.count]]
    numbers = {task.name: number for number, task in enumerate(dataset)}
    return [(numbers[task.name], task.path) for task in chosen]


def _load_adapters(harnesses: tuple[str, ...]) -> None:
    """Import Harbor while the gateway starts: both take seconds."""
    from harbor_env.harnesses.wiring import load_adapter

    for name in harnesses:
        load_adapter(find(name))


async def _layers(order: Order, report: Report) -> dict[str, tuple[Path, ...]]:
    """A baked layer per harness where the sandbox can mount one; baked now if it is not there."""
    layers: dict[str, tuple[Path, ...]] = {}
    for name in order.harnesses:
        harness = find(name)
        bakes = order.sandbox == "local" and harness.bake is not None
        layers[name] = (await bake_harness(harness, report.say),) if bakes else ()
    return layers


def _spec(
    order: Order, job: Job, address: GatewayAddress, out: Path, layers: dict[str, tuple[Path, ...]]
) -> RolloutSpec:
    purpose: Literal["train", "eval"] = "eval" if order.purpose == "eval" else "train"
    sampling: dict[str, Any] = {"temperature": order.temperature}
    if order.seed is not None:
        sampling["seed"] = order.seed + job.attempt
    limits = {"max_calls": order.max_calls, "max_output_tokens": order.max_output_tokens}
    return RolloutSpec(
        name=job.name,
        task=job.task,
        harness=job.harness,
        gateway=address,
        out=out,
        sandbox=order.sandbox,
        layers=layers[job.harness],
        sampling=sampling,
        budget={name: limit for name, limit in limits.items() if limit},
        purpose=purpose,
        agent_timeout=order.agent_timeout or None,
        reward_key=order.reward_key,
    )
