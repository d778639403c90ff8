"""Time Harbor trials in the local sandbox: how long the oracle takes on a trivial task, alone and several at once.

    python scripts/bench_sandbox.py --concurrency 1,4,8 --repeat 3

Prints wall and CPU seconds (this process and its children) per batch; the first batch warms caches and is not counted.
CPU seconds over the number of processors are the least a quiet machine needs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

TASK = {
    "task.toml": '[task]\nname = "bench/trivial"\n[environment]\nworkdir = "/app"\n'
    '[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Make a file.\n",
    "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\nCOPY Dockerfile /app/\n",
    "solution/solve.sh": "echo done > /app/out\n",
    "tests/test.sh": "test -e /app/out && echo 1 > /logs/verifier/reward.txt\n",
}


def _write(folder: Path) -> Path:
    for name, text in TASK.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


async def _trial(task: Path, trials: Path, name: str, agent: str) -> float:
    from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    from harbor_env.sandboxes import environment_config

    began = time.perf_counter()
    config = TrialConfig(
        task=TaskConfig(path=task),
        trial_name=name,
        trials_dir=trials,
        agent=AgentConfig(name=agent),
        environment=environment_config("local", gateway="127.0.0.1:9"),
    )
    result = await (await Trial.create(config)).run()
    if result.exception_info is not None or result.verifier_result is None:
        raise SystemExit(f"the trial failed: {result.exception_info}")
    return time.perf_counter() - began


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


async def _measure(arguments: argparse.Namespace, folder: Path) -> None:
    task = _write(folder / "task")
    await _trial(task, folder / "trials", "warm", arguments.agent)
    print("trials at once   wall s   CPU s   slowest trial s")
    for count in arguments.concurrency:
        for repeat in range(arguments.repeat):
            wall, cpu = time.perf_counter(), _cpu()
            names = [f"n{count}-r{repeat}-{number}" for number in range(count)]
            each = await asyncio.gather(*(_trial(task, folder / "trials", name, arguments.agent) for name in names))
            wall, cpu = time.perf_counter() - wall, _cpu() - cpu
            print(f"{count:14d}   {wall:6.2f}   {cpu:5.2f}   {max(each):6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=lambda text: [int(word) for word in text.split(",")], default=[1, 4, 8])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--agent", default="oracle", help="oracle or nop")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
