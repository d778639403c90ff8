"""Kill the gateway with signal 9 at seeded moments of a loaded run, and check that no turn a harness was shown is lost.

    python scripts/kill_gateway.py --tokenizer DIR [--kills 50 --sessions 8 --seed 6 --workers 1]

After each kill the gateway is started again on the same data and port, and every harness sends its unanswered request
once more. At the end the store must hold each shown reply with exactly the ids the engine sampled, and each session
must be one chain. Prints a summary; exit status 1 if anything is missing or different.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import orjson
from bench.conversation import Chat
from bench.fake_engine import Script
from bench.loss import Loss, Shown, look_for_loss
from bench.programs import command, free_port, gateway_command, running, start
from tokenizers import Tokenizer

from harbor_env.gateway.store import Store

TURNS, FIRST, GROWTH, REPLY = 40, 600, 120, 60
RETRY_AFTER = 0.05
KILL_WITHIN = 0.8
"""Seconds after the first answer of a gateway in which it is killed."""


class Harnesses:
    """Sessions played at once, each turn sent again until it is answered. `shown` is what each session received."""

    def __init__(self, url: str, script: Script) -> None:
        self.url, self.script = url, script
        self.shown: dict[str, list[Shown]] = {}
        self.stopping = False
        self.answered = asyncio.Event()

    async def play(self, http: aiohttp.ClientSession) -> None:
        """One session after the other until told to stop."""
        while not self.stopping:
            opened = orjson.loads(await self.ask(http, "/sessions", b"{}", {}))
            shown = self.shown.setdefault(opened["session_id"], [])
            talk = Chat(FIRST, GROWTH)
            going_on = True
            while going_on and not self.stopping:
                raw = await self.ask(http, talk.path, talk.body(), talk.headers(opened["api_key"]))
                going_on = talk.absorb(raw)
                message = orjson.loads(raw)["choices"][0]["message"]
                call_ids = tuple(call["id"] for call in message.get("tool_calls") or ())
                sampled = tuple(self.script.sampled(len(shown)))
                shown.append(Shown(message.get("content") or "", call_ids, sampled))
                self.answered.set()

    async def ask(self, http: aiohttp.ClientSession, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        """The answer to one request, sent again for as long as the gateway is away."""
        while True:
            try:
                async with http.post(self.url + path, data=body, headers=headers) as answer:
                    raw = await answer.read()
                if answer.status == 200:
                    return raw
                if answer.status < 500:
                    raise RuntimeError(f"{path}: HTTP {answer.status} {raw[:200]!r}")
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                pass
            await asyncio.sleep(RETRY_AFTER)


async def kill_at_moments(given: argparse.Namespace, arguments: list[str], port: int, harnesses: Harnesses) -> None:
    """Start and kill the gateway `given.kills` times while harnesses play, then let one more serve and stop."""
    moments = random.Random(given.seed)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http:
        players = [asyncio.create_task(harnesses.play(http)) for _ in range(given.sessions)]
        for kill in range(given.kills + 1):
            process = await asyncio.to_thread(start, arguments, port, new_group=True)
            harnesses.answered.clear()
            await asyncio.wait_for(harnesses.answered.wait(), 60)
            await asyncio.sleep(moments.uniform(0, KILL_WITHIN))
            if kill == given.kills:
                harnesses.stopping = True
                await asyncio.gather(*players)
            os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)
            print(f"\r{kill}/{given.kills} kills", end="", file=sys.stderr, flush=True)


def check(data: Path, harnesses: Harnesses) -> Loss:
    store, loss = Store.open(data), Loss()
    for number, (session, shown) in enumerate(harnesses.shown.items()):
        look_for_loss(f"session {number}", shown, store.turns(session), loss)
    store.close()
    return loss


async def run(given: argparse.Namespace, data: Path) -> Loss:
    script = Script(Tokenizer.from_file(str(given.tokenizer / "tokenizer.json")), TURNS, FIRST, GROWTH, REPLY)
    shape = ("--turns", TURNS, "--first", FIRST, "--growth", GROWTH, "--reply", REPLY, "--delay-ms", 20)
    engine_port, port = free_port(), free_port()
    engine = command("bench.fake_engine", "--tokenizer", given.tokenizer, "--port", engine_port, *shape)
    with running(engine, engine_port) as fake:
        arguments = [*gateway_command(fake.url, given.tokenizer, data, port), "--workers", str(given.workers)]
        harnesses = Harnesses(f"http://127.0.0.1:{port}", script)
        await kill_at_moments(given, arguments, port, harnesses)
    return check(data, harnesses)


def main() -> int:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--tokenizer", type=Path, required=True, help="folder of Qwen3's tokenizer")
    for name, default in (("kills", 50), ("sessions", 8), ("seed", 6), ("workers", 1)):
        found.add_argument(f"--{name}", type=int, default=default)
    given = found.parse_args()
    given.tokenizer = given.tokenizer.resolve()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        loss = asyncio.run(run(given, Path(scratch)))
    print(f"\n{given.kills} kills of {given.workers} worker(s) in {time.monotonic() - began:.0f} s:")
    print(f"{loss.shown} replies shown, {loss.stored} turns stored, {loss.unshown} of them never received,")
    print(f"{len(loss.faults)} lost or different")
    for fault in loss.faults[:20]:
        print(f"  {fault}")
    return 1 if loss.faults else 0


if __name__ == "__main__":
    sys.exit(main())
