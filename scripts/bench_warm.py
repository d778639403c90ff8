"""Time rollouts that start their harness cold beside rollouts that fork it: wall and CPU seconds of each.

    python scripts/bench_warm.py --tokenizer FOLDER_OR_GGUF --repeat 5

A scripted policy solves a bundled task in two turns, so that next to nothing but the harness's own work is timed. Cold
and warm rollouts take turns. CPU seconds are all that this process and what it starts use, gateway, sandbox and
verifier included, from a cgroup: it takes root and cgroups of version 1. The fork server's own start is in `first`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harbor_env.gateway.types import Message, Tool, ToolCall

ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")
TASK = "l1-count-lines"
POLICY = f"scripted:{Path(__file__).resolve()}:count"


def count(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """The policy: count, then say that it is done as mini-swe-agent wants to hear it."""
    done = messages[-1].role == "tool"
    command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" if done else "wc -l < /app/orders.txt > /app/answer.txt"
    return Message("assistant", tool_calls=(ToolCall("", tools[0].name, f'{{"command": "{command}"}}'),))


@contextmanager
def account() -> Iterator[Path]:
    """A file with the nanoseconds used by this process and all it starts from here on."""
    folder = ACCOUNTS / "bench-warm"  # stays, for what this process started ends after it
    try:
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text("0")
    except OSError as error:
        raise SystemExit(f"CPU seconds cannot be counted here: {error}") from error
    try:
        yield folder / "cpuacct.usage"
    finally:
        (ACCOUNTS / "cgroup.procs").write_text("0")


async def measure(arguments: argparse.Namespace, out: Path, used: Path) -> None:
    from harbor_env.harnesses import find
    from harbor_env.harnesses.baking import bake_harness
    from harbor_env.rollout import RolloutSpec, run_rollout
    from harbor_env.sandboxes.warm import end_fork_servers
    from harbor_env.serving_gateway import EngineFlags, serving_gateway
    from harbor_env.tasks import load_dataset

    layer = await bake_harness(find("mini-swe-agent"), print)
    task = load_dataset("bundled").find(TASK)
    taken: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    async with serving_gateway(EngineFlags(engine=POLICY, tokenizer=arguments.tokenizer), out, print) as address:
        spec = RolloutSpec("", task.path, "mini-swe-agent", address, out, layers=(layer,))
        print("start   wall s   agent s   CPU s")
        for number in range(1 + arguments.repeat):
            for warm in (False, True):
                wall, cpu = time.perf_counter(), _seconds(used)
                result = await run_rollout(replace(spec, name=f"{number}-{warm}", warm=warm))
                wall, cpu = time.perf_counter() - wall, _seconds(used) - cpu
                if result.reward != 1 or "cold_start" in result.findings:
                    raise SystemExit(f"a rollout did not go as planned: {result.reason or result.findings}")
                row = (wall, result.seconds["agent"], cpu)
                if number:
                    taken[warm].append(row)
                print(f"{_word(warm)}{_numbers(row)}{'' if number else '   first'}", flush=True)
    await end_fork_servers()
    for warm, rows in taken.items():
        medians = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"{_word(warm)}{_numbers(medians)}   median of {len(rows)}")


def _seconds(used: Path) -> float:
    return int(used.read_text()) / 1e9


def _word(warm: bool) -> str:
    return "warm" if warm else "cold"


def _numbers(row: Sequence[float]) -> str:
    wall, agent, cpu = row
    return f"   {wall:7.2f}   {agent:7.2f}   {cpu:5.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="folder with tokenizer.json, a .gguf file or a hub id")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    with account() as used, tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(arguments, Path(folder), used))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
