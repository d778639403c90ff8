"""Kill parts of a serving system with signal 9 at seeded moments: every rollout must end, and nothing be left.

    python scripts/kill_rollouts.py --tokenizer DIR [--kills 100 --seed 4 --parts server,worker,...]

Clients run rollouts through `openenv-harbor serve` in the local sandbox, against an engine process with a script. After
each kill, all rollouts that ran must end as a score or as a failure with a reason, all processes below the victim must
go, and a rollout begun afterwards must score. A killed server, engine or client is started again; the rest must come
back by itself. At the end nothing may be left. Prints a table of worst cases; exit status 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from bench.programs import command, free_port, start
from kills.machine import PARTS, Sandboxes, alive, become_reaper, family, reap, victims, wait_until
from kills.tally import Kills, table

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 40.0
"""Seconds a step may take."""
GRACE = 25.0
"""Seconds beyond it until the server has ended a rollout by force."""
AGAIN_WITHIN = 120.0
"""Seconds until the system works again after a kill."""
THERE_WITHIN = 30.0
"""Seconds to wait for a process of a part: a nursery that died is started again only when a worker is wanted."""
CLIENTS, THREADS = 2, 2
MOMENTS = 4.0
"""Seconds after the last recovery within which the next kill falls: about one rollout's length."""


@dataclass
class Client:
    """A client process, the rollouts it has begun and not ended, and those that ended, as it told them."""

    process: subprocess.Popen[str]
    running: dict[int, float] = field(default_factory=dict)
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if "began" in told:
                self.running[told["began"]] = told["at"]
            else:
                self.ended[told["ended"]] = {**told, "began_at": self.running.pop(told["ended"], told["at"])}


class System:
    """An engine, a server and clients; whatever of it is started here is started again here."""

    def __init__(self, folder: Path, tokenizer: Path, harness: str, gateway_workers: int) -> None:
        self.harness = harness
        self.ports = {"engine": free_port(), "server": free_port()}
        self.data = folder / "data"
        shape = ("--turns", 4, "--first", 600, "--growth", 60, "--reply", 60, "--delay-ms", 150)
        engine = command("bench.fake_engine", "--tokenizer", tokenizer, "--port", self.ports["engine"], *shape)
        url = f"http://127.0.0.1:{self.ports['engine']}"
        flags = ("--llm-url", url, "--model", "fake", "--tokenizer", tokenizer, "--dataset", folder / "tasks")
        flags += ("--gateway-workers", str(gateway_workers))
        serve = command("harbor_env.cli", "serve", *flags, "--port", self.ports["server"], "--data", self.data)
        self.commands = {"engine": engine, "server": serve}
        self.programs = {name: start(self.commands[name], self.ports[name]) for name in ("engine", "server")}
        self.clients = [self.new_client() for _ in range(CLIENTS)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['server']}"

    def restart(self, name: str) -> None:
        self.programs[name].wait()
        self.programs[name] = start(self.commands[name], self.ports[name])

    def new_client(self) -> Client:
        arguments = command("kills.client", self.url, self.harness, THREADS, TIMEOUT)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}:{os.environ['PYTHONPATH']}"}
        client = Client(subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True))
        threading.Thread(target=client.read, daemon=True).start()
        return client

    def scored_since(self, moment: float) -> bool:
        """Whether a rollout that began after `moment` has scored."""
        ends = [end for client in self.clients for end in list(client.ended.values())]
        return any(end.get("ok") and end["began_at"] > moment for end in ends)

    def find(self, part: str, dice: random.Random) -> psutil.Process | None:
        """A process that plays the part, once there is one. None: no such process was needed for a while."""
        if part == "client":
            return psutil.Process(dice.choice(self.clients).process.pid)
        if part == "engine":
            return psutil.Process(self.programs["engine"].pid)
        found: list[psutil.Process] = []

        def there() -> bool:
            found[:] = victims(part, self.programs["server"].pid)
            return bool(found)

        with contextlib.suppress(TimeoutError):
            wait_until(there, THERE_WITHIN)
        return dice.choice(found) if found else None

    def close(self) -> None:
        """End clients after the rollouts that run, then the server, then the engine, as a user would."""
        for client in self.clients:
            client.process.terminate()
        for client in self.clients:
            client.process.wait(TIMEOUT + GRACE)
        for name in ("server", "engine"):
            self.programs[name].terminate()
            self.programs[name].wait(60)

    @property
    def known(self) -> list[int]:
        return [client.process.pid for client in self.clients] + [one.pid for one in self.programs.values()]


def kill(system: System, sandboxes: Sandboxes, kills: Kills, dice: random.Random) -> None:
    """One kill and all that must follow from it."""
    time.sleep(dice.uniform(0, MOMENTS))
    victim = system.find(kills.part, dice)
    if victim is None:
        return
    below = [victim] if kills.part == "nursery" else family(victim)  # its workers go on with what they run
    inflight = [(client, list(client.running)) for client in system.clients]
    there = set(sandboxes.scratch.iterdir())
    victim.send_signal(signal.SIGKILL)
    at = time.monotonic()
    kills.count += 1
    gone = _gone(kills, below, at)
    if kills.part in ("server", "engine"):
        time.sleep(dice.uniform(0, 2.0))
        system.restart(kills.part)
    if kills.part == "client":
        _client_gone(system, kills, victim.pid, there)
    for client, numbers in inflight:
        if client.process.pid != victim.pid:
            _ended(kills, client, numbers, at)
    kills.gone = max(kills.gone, gone)
    try:
        wait_until(lambda: system.scored_since(at), AGAIN_WITHIN)
        kills.works = max(kills.works, time.monotonic() - at)
    except TimeoutError:
        kills.faults.append(f"{kills.part}: no rollout scored within {AGAIN_WITHIN:.0f} s")
    reap(system.known)


def _gone(kills: Kills, below: list[psutil.Process], at: float) -> float:
    try:
        wait_until(lambda: not alive(below), GRACE)
    except TimeoutError:
        kills.faults += [f"{kills.part}: {one.pid} {one.cmdline()[:6]} runs on" for one in alive(below)]
    return time.monotonic() - at


def _ended(kills: Kills, client: Client, numbers: list[int], at: float) -> None:
    try:
        wait_until(lambda: all(number in client.ended for number in numbers), TIMEOUT + GRACE)
    except TimeoutError:
        kills.faults.append(f"{kills.part}: {numbers} did not end within {TIMEOUT + GRACE:.0f} s")
    for number in numbers:
        end = client.ended.get(number)
        if end is not None:
            kills.take(end)
            kills.ended = max(kills.ended, end["at"] - at)


def _client_gone(system: System, kills: Kills, pid: int, there: set[Path]) -> None:
    """Its rollouts are cancelled: no more of the sandboxes there were than the other clients can have are left."""
    began = time.monotonic()
    gone = next(client for client in system.clients if client.process.pid == pid)
    gone.process.wait()
    kills.outcomes["client gone"] += len(gone.running)
    others = THREADS * (len(system.clients) - 1)
    try:
        wait_until(lambda: sum(path.exists() for path in there) <= others, GRACE)
    except TimeoutError:
        kills.faults.append("client: its sandboxes are still there")
    kills.ended = max(kills.ended, time.monotonic() - began)
    system.clients[system.clients.index(gone)] = system.new_client()


def leftovers(system: System, sandboxes: Sandboxes, folder: Path) -> list[str]:
    """Processes, sandboxes and files that outlived the system."""
    children = psutil.Process().children

    def all_gone() -> bool:
        reap(())
        return not alive(children(recursive=True)) and not sandboxes.left()

    with contextlib.suppress(TimeoutError):
        wait_until(all_gone, GRACE)
    processes = [f"process {one.pid} {' '.join(one.cmdline())[:200]}" for one in alive(children(recursive=True))]
    files = [str(path) for path in (system.data / "rollouts").rglob("*") if path.is_file() and path.name != ".lock"]
    return [*processes, *sandboxes.left(), *files, *(str(path) for path in (folder / "tmp").iterdir())]


def plan(kills: int, parts: list[str], dice: random.Random) -> list[str]:
    """Every part equally often, in a random order."""
    order = [parts[number % len(parts)] for number in range(kills)]
    dice.shuffle(order)
    return order


def run(given: argparse.Namespace, folder: Path) -> int:
    dice = random.Random(given.seed)
    tally = {part: Kills(part) for part in given.parts.split(",")}
    sandboxes = Sandboxes(folder / "scratch")
    system = System(folder, given.tokenizer, given.harness, given.gateway_workers)
    began = time.monotonic()
    try:
        wait_until(lambda: system.scored_since(0.0), 120)
        for number, part in enumerate(plan(given.kills, list(tally), dice)):
            if time.monotonic() - began > given.within:
                break
            kill(system, sandboxes, tally[part], dice)
            print(f"\r{number + 1}/{given.kills} kills", end="", file=sys.stderr, flush=True)
    finally:
        system.close()
    left = leftovers(system, sandboxes, folder)
    sandboxes.close()
    count, seconds = sum(kills.count for kills in tally.values()), time.monotonic() - began
    print(f"\n{table(tally.values())}")
    print(f"{count} kills in {seconds:.0f} s; {len(sandboxes.seen)} sandboxes were made; left: {len(left)}")
    faults = [fault for kills in tally.values() for fault in kills.faults] + left
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


def main() -> int:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--tokenizer", type=Path, required=True, help="folder of Qwen3's tokenizer")
    found.add_argument("--harness", default="tests.tiny_harness:TINY", help="name or module:NAME")
    found.add_argument("--parts", default=",".join(PARTS))
    found.add_argument("--kills", type=int, default=100)
    found.add_argument("--seed", type=int, default=4)
    found.add_argument("--gateway-workers", type=int, default=1)
    found.add_argument("--within", type=float, default=7200.0, help="seconds after which no more are killed")
    given = found.parse_args()
    given.tokenizer = given.tokenizer.resolve()
    became = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{ROOT}:{became}" if became else str(ROOT)
    become_reaper()
    sys.path.insert(0, str(ROOT))
    from tests.tiny_harness import write_task

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in ("tmp", "scratch"):
            (folder / name).mkdir()
        write_task(folder / "tasks" / "one", reward='{"reward": 1}')
        os.environ |= {"TMPDIR": str(folder / "tmp"), "OPENENV_HARBOR_SCRATCH": str(folder / "scratch")}
        return run(given, folder)


if __name__ == "__main__":
    sys.exit(main())
