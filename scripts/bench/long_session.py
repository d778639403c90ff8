"""What one long session costs a proxy: memory while it grows, then time and bytes of reading it back.

    python -m bench.long_session --url URL --pid PID --sessions gateway|peer --exports PATH,PATH

Memory is the growth of the process's resident set over the session, in MB; exports are medians of three reads.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import Any

import aiohttp
import orjson
import psutil

from bench.load import Measured, admin, open_sessions, play, talk_for


async def run(given: argparse.Namespace) -> dict[str, Any]:
    process = psutil.Process(given.pid)
    seen = Measured()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as http:
        for _ in range(3):  # what is loaded once is loaded before measuring
            (warm,) = await open_sessions(http, given)
            await play(http, given.url, warm[1], talk_for(given), 3, Measured())
        (session,) = await open_sessions(http, given)
        before = process.memory_info().rss
        await play(http, given.url, session[1], talk_for(given), given.turns, seen)
        grown = process.memory_info().rss - before
        exports = {path: await read_back(http, given, path.format(id=session[0])) for path in given.exports.split(",")}
    tenth = max(1, len(seen.latencies) // 10)
    return {
        "turns": len(seen.latencies),
        "lost": seen.lost,
        "errors": dict(seen.errors),
        "rss_mb": round(grown / 1e6, 1),
        "first_turns_ms": round(1e3 * statistics.median(seen.latencies[1 : tenth + 1]), 1),
        "last_turns_ms": round(1e3 * statistics.median(seen.latencies[-tenth:]), 1),
        "exports": exports,
    }


async def read_back(http: aiohttp.ClientSession, given: argparse.Namespace, path: str) -> dict[str, float]:
    took, size = [], 0
    for _ in range(3):
        began = time.perf_counter()
        async with http.get(given.url + path, headers=admin(given)) as answer:
            answer.raise_for_status()
            size = len(await answer.read())
        took.append(time.perf_counter() - began)
    return {"ms": round(1e3 * statistics.median(took)), "mb": round(size / 1e6, 2)}


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--url", required=True)
    found.add_argument("--dialect", choices=["anthropic", "chat"], default="anthropic")
    found.add_argument("--sessions", choices=["gateway", "peer"], default="gateway")
    found.add_argument("--pid", type=int, required=True)
    found.add_argument("--admin-key", default="")
    found.add_argument("--exports", required=True, help="paths, {id} is the session's")
    for name, default in (("turns", 200), ("first", 20_000), ("growth", 200), ("reply", 120)):
        found.add_argument(f"--{name}", type=int, default=default)
    given = found.parse_args()
    given.n, given.options = 1, {}
    print(orjson.dumps(asyncio.run(run(given))).decode())


if __name__ == "__main__":
    main()
