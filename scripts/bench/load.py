"""Load one proxy with N sessions at once and print one JSON line about it.

    python -m bench.load --url URL --dialect anthropic -n 64 --pid PID [--sessions gateway|peer|none --admin-key KEY]

CPU is that of process `--pid`; latency is of whole replies, in milliseconds; a session whose turn fails is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
import psutil

from bench.conversation import Anthropic, Chat

HEALTH_EVERY = 0.25
ENOUGH_TURNS = 100
"""Small runs are repeated until there are this many turns: CPU time is counted in steps of 10 ms."""


@dataclass
class Measured:
    """What the sessions of one run saw; times in seconds."""

    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    lost: int = 0


async def play(
    http: aiohttp.ClientSession, url: str, key: str, talk: Chat | Anthropic, turns: int, seen: Measured
) -> None:
    """One session, turn after turn, until its script ends or a turn fails."""
    for _ in range(turns):
        began = time.perf_counter()
        try:
            async with http.post(url + talk.path, data=talk.body(), headers=talk.headers(key)) as answer:
                raw = await answer.read()
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}")
            going_on = talk.absorb(raw)
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            seen.errors[f"{type(error).__name__}: {str(error)[:60]}"] += 1
            seen.lost += 1
            return
        seen.latencies.append(time.perf_counter() - began)
        if not going_on:
            return


def talk_for(given: argparse.Namespace) -> Chat | Anthropic:
    growth = given.growth - given.reply - 20
    if given.dialect == "anthropic":
        return Anthropic(given.first - 250, growth)
    return Chat(given.first - 250, growth, capture=given.sessions == "none")


async def open_sessions(http: aiohttp.ClientSession, given: argparse.Namespace) -> list[tuple[str, str]]:
    """(id, key) of `given.n` new sessions with `given.options`."""
    if given.sessions == "none":
        return [("", "none")] * given.n
    found = []
    for _ in range(given.n):
        async with http.post(f"{given.url}/sessions", json=given.options, headers=admin(given)) as answer:
            opened = await answer.json()
        found.append((opened["session_id"], opened.get("api_key", opened["session_id"])))
    return found


async def close_sessions(
    http: aiohttp.ClientSession, given: argparse.Namespace, sessions: list[tuple[str, str]]
) -> None:
    for session_id, _ in sessions if given.sessions != "none" else ():
        async with http.delete(f"{given.url}/sessions/{session_id}", headers=admin(given)) as answer:
            await answer.read()


def admin(given: argparse.Namespace) -> dict[str, str]:
    return {"authorization": f"Bearer {given.admin_key}"} if given.admin_key else {}


async def run(given: argparse.Namespace) -> dict[str, Any]:
    process = psutil.Process(given.pid)
    seen = Measured()
    wall = cpu = 0.0
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=110)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=given.timeout)) as http:
        while len(seen.latencies) < min(ENOUGH_TURNS, given.n * given.turns * 30) and not seen.lost:
            sessions = await open_sessions(http, given)
            before, began = used(process), time.perf_counter()
            players = (play(http, given.url, key, talk_for(given), given.turns, seen) for _, key in sessions)
            await asyncio.gather(*players)
            wall += time.perf_counter() - began
            cpu += used(process) - before
            await close_sessions(http, given, sessions)
    return summary(given, seen, wall, cpu)


def used(process: psutil.Process) -> float:
    """CPU seconds of a process and its workers."""
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))


def summary(given: argparse.Namespace, seen: Measured, wall: float, cpu: float) -> dict[str, Any]:
    latencies = sorted(seen.latencies)
    done = len(latencies)
    return {
        "n": given.n,
        "turns": done,
        "cpu_ms": round(1e3 * cpu / max(1, done), 3),
        "turns_per_s": round(done / wall, 1),
        "p50_ms": round(1e3 * latencies[done // 2], 1) if done else None,
        "p99_ms": round(1e3 * latencies[min(done - 1, done * 99 // 100)], 1) if done else None,
        "lost": seen.lost,
        "errors": dict(seen.errors.most_common(5)),
    }


def watch_health(url: str, stop: Any, took_ms: Any) -> None:
    """Poll a health route from a process of its own; puts a list of milliseconds, inf where there was no answer."""
    found = []
    while not found or not stop.wait(HEALTH_EVERY):
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
                answer.read()
            found.append(1e3 * (time.perf_counter() - began))
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            found.append(float("inf"))
    took_ms.put(sorted(found))


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--url", required=True)
    found.add_argument("--dialect", choices=["anthropic", "chat"], default="anthropic")
    found.add_argument("--sessions", choices=["gateway", "peer", "none"], default="gateway")
    found.add_argument("--pid", type=int, required=True)
    found.add_argument("--admin-key", default="")
    found.add_argument("--timeout", type=float, default=300.0)
    for name, default in (("n", 1), ("turns", 10), ("first", 4000), ("growth", 500), ("reply", 120)):
        found.add_argument(f"-{name}" if name == "n" else f"--{name}", type=int, default=default)
    given = found.parse_args()
    given.options = {}
    spawn = multiprocessing.get_context("spawn")
    stop, took_ms = spawn.Event(), spawn.Queue()
    watcher = spawn.Process(target=watch_health, args=(given.url, stop, took_ms), daemon=True)
    watcher.start()
    result = asyncio.run(run(given))
    stop.set()
    health = took_ms.get(timeout=60)
    watcher.join()
    result |= {"health_p99_ms": round(health[len(health) * 99 // 100], 1), "health_worst_ms": round(health[-1], 1)}
    print(orjson.dumps(result).decode())


if __name__ == "__main__":
    main()
