"""How many rollouts the environment server carries at once: all of them begin together, on one machine.

    python scripts/bench_server.py --tokenizer DIR [--rollouts 64 --delay-ms 200 --harness tests.tiny_harness:TINY]

An engine with a script, `openenv-harbor serve`, the local sandbox and a small harness; each rollout is 4 model calls.
Prints how many completed and how many were lost, seconds per phase (the engine's own delay taken off the agent's;
`around` is what lies outside the phases: a process, a session, the capture), and the slowest answer of /health.
Exit status 1 if any rollout is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from bench.programs import command, free_port, running

from harbor_env.client import HarborEnv
from harbor_env.models import HarborAction, HarborResult

ROOT = Path(__file__).resolve().parent.parent
TURNS = 4
TIMEOUT = 600.0
"""Seconds a step may take before it counts as lost."""
PHASES = ("around", "sandbox", "setup", "agent", "verifier", "total", "wire")


@dataclass
class Measured:
    """What the rollouts came to. `walls` are seconds as the client saw them, one for each of `results`."""

    results: list[HarborResult] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    health: list[float] = field(default_factory=list)

    def phases(self, delay: float) -> dict[str, list[float]]:
        """Seconds per phase, a value a rollout: what the system added to the engine's `delay` per call."""
        found: dict[str, list[float]] = {phase: [] for phase in PHASES}
        for result, wall in zip(self.results, self.walls, strict=True):
            engine = delay * result.counts.get("turns", 0)
            seconds = result.seconds
            inside = sum(seconds.get(phase, 0.0) for phase in ("sandbox", "setup", "agent", "verifier"))
            found["around"].append(seconds["total"] - inside)
            for phase in ("sandbox", "setup", "verifier"):
                found[phase].append(seconds.get(phase, 0.0))
            found["agent"].append(seconds.get("agent", 0.0) - engine)
            found["total"].append(seconds["total"] - engine)
            found["wire"].append(wall - seconds["total"])
        return found


async def play(url: str, harness: str, measured: Measured) -> None:
    began = time.monotonic()
    try:
        async with HarborEnv(url, message_timeout_s=TIMEOUT) as env:
            await env.reset(seed=0)
            began = time.monotonic()
            observation = (await env.step(HarborAction(harness=harness, timeout=TIMEOUT))).observation
    except (RuntimeError, ConnectionError, TimeoutError) as error:
        measured.lost.append(str(error))
        return
    result = observation.result
    if result is None or not result.ok:
        measured.lost.append(str(observation.error or (result and result.reason)))
        return
    measured.results.append(result)
    measured.walls.append(time.monotonic() - began)


async def look(url: str, measured: Measured) -> None:
    """Ask for /health, a connection each, until cancelled."""
    while True:
        began = time.monotonic()
        async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as answer:
            await answer.read()
        measured.health.append(time.monotonic() - began)
        await asyncio.sleep(0.1)


async def measure(url: str, given: argparse.Namespace) -> tuple[Measured, float]:
    """One rollout alone first, so that nothing is made for the first time, then all at once; seconds for all."""
    await play(url, given.harness, warm := Measured())
    if warm.lost:
        raise RuntimeError(f"not even one rollout: {warm.lost[0]}")
    measured = Measured()
    looking = asyncio.create_task(look(url, measured))
    began = time.monotonic()
    await asyncio.gather(*(play(url, given.harness, measured) for _ in range(given.rollouts)))
    wall = time.monotonic() - began
    looking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking
    return measured, wall


def at(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def report(measured: Measured, wall: float, given: argparse.Namespace) -> None:
    count, cores = len(measured.results), len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    print(f"{given.rollouts} rollouts at once on {cores} cores in {wall:.1f} s (load average {load:.1f} at the end):")
    print(f"{count} completed, {len(measured.lost)} lost")
    worst, median = (1000 * value for value in (max(measured.health), statistics.median(measured.health)))
    print(f"/health: worst {worst:.0f} ms, median {median:.0f} ms")
    if measured.results:
        print("phase      p50 s   p95 s   (the engine's delay not counted)")
        for phase, values in measured.phases(given.delay_ms / 1000).items():
            print(f"{phase:9} {at(values, 0.5):6.2f}  {at(values, 0.95):6.2f}")
    for sentence in measured.lost[:10]:
        print(f"  lost: {sentence}")


def main() -> int:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--tokenizer", type=Path, required=True, help="folder of Qwen3's tokenizer")
    found.add_argument("--harness", default="tests.tiny_harness:TINY", help="name or module:NAME")
    found.add_argument("--rollouts", type=int, default=64)
    found.add_argument("--delay-ms", type=float, default=200.0)
    given = found.parse_args()
    tokenizer = given.tokenizer.resolve()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    sys.path.insert(0, str(ROOT))
    from tests.tiny_harness import write_task

    with tempfile.TemporaryDirectory() as scratch:
        write_task(Path(scratch) / "tasks" / "one", reward='{"reward": 1}')
        engine_port, port = free_port(), free_port()
        shape = ("--turns", TURNS, "--first", 600, "--growth", 60, "--reply", 60, "--delay-ms", given.delay_ms)
        engine = command("bench.fake_engine", "--tokenizer", tokenizer, "--port", engine_port, *shape)
        flags = (
            "--model",
            "fake",
            "--tokenizer",
            tokenizer,
            "--dataset",
            f"{scratch}/tasks",
            "--data",
            f"{scratch}/data",
        )
        with running(engine, engine_port) as fake:
            serve = command("harbor_env.cli", "serve", "--llm-url", fake.url, "--port", port, *flags)
            with running([*serve, "--max-concurrent-envs", str(given.rollouts + 1)], port) as server:
                measured, wall = asyncio.run(measure(server.url, given))
    report(measured, wall, given)
    return 1 if measured.lost else 0


if __name__ == "__main__":
    sys.exit(main())
