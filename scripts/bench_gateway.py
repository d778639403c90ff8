"""Measure the gateway beside OpenEnv's capture proxy and a bare pass-through, over one fake engine, in one run.

    python scripts/bench_gateway.py --tokenizer DIR [--sizes 1,64,256,1024,2000] [--peer-sizes 1,64,256] [--out FILE]
    python scripts/bench_gateway.py --tokenizer DIR --parts session,drift

Prints Markdown tables. `DIR` holds Qwen3's tokenizer.json and tokenizer_config.json. Everything runs on loopback; CPU
is per turn and of the proxy alone, so the figures stand even where the load generator shares its cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.programs import Program, command, free_port, gateway_command, running

COLUMNS = ("cpu_ms", "turns_per_s", "p50_ms", "p99_ms", "health_p99_ms", "health_worst_ms", "lost")
HEADINGS = ("CPU ms/turn", "turns/s", "p50 ms", "p99 ms", "/health p99 ms", "worst", "sessions lost")


@dataclass(frozen=True)
class Proxy:
    """A proxy to measure. `exports` are the paths that read a session back."""

    name: str
    sessions: str
    dialect: str
    admin_key: str = ""
    exports: tuple[str, ...] = ()


GATEWAY = Proxy(
    "gateway",
    "gateway",
    "anthropic",
    exports=tuple(f"/sessions/{{id}}/export?format={name}" for name in ("trace", "rows")),
)
PEER = Proxy("openenv 0.10", "peer", "anthropic", "admin", ("/sessions/{id}/rollout", "/sessions/{id}/trace_entries"))
PASSTHROUGH = Proxy("pass-through", "none", "chat")


@contextmanager
def engine(tokenizer: Path, delay_ms: float, *shape: object) -> Iterator[Program]:
    port = free_port()
    flags = ("--tokenizer", tokenizer, "--port", port, "--delay-ms", delay_ms, *shape)
    with running(command("bench.fake_engine", *flags), port) as started:
        yield started


@contextmanager
def proxy(kind: Proxy, engine_url: str, tokenizer: Path, data: Path) -> Iterator[Program]:
    port = free_port()
    commands = {
        GATEWAY.name: gateway_command(engine_url, tokenizer, data, port),
        PEER.name: command("bench.peer", port, engine_url),
        PASSTHROUGH.name: command("bench.passthrough", port, engine_url),
    }
    with running(commands[kind.name], port) as started:
        yield started


def measure(module: str, kind: Proxy, program: Program, *flags: object) -> dict[str, Any]:
    """The JSON line of one measuring program, run in a process of its own."""
    common = ("--url", program.url, "--pid", program.pid, "--dialect", kind.dialect, "--sessions", kind.sessions)
    arguments = [*command(module, *common, *flags), *(["--admin-key", kind.admin_key] if kind.admin_key else [])]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    print(f"# {kind.name} {json.dumps(found)}", file=sys.stderr, flush=True)
    return found


def load_table(given: argparse.Namespace, scratch: Path) -> str:
    shape = ("--turns", given.turns, "--first", given.first)
    plan = [(PASSTHROUGH, given.sizes), (GATEWAY, given.sizes), (PEER, given.peer_sizes)]
    lines: list[Sequence[object]] = []
    with engine(given.tokenizer, given.delay_ms, *shape) as fake:
        for kind, sizes in plan:
            if not sizes:
                continue
            with proxy(kind, fake.url, given.tokenizer, scratch / "load") as program:
                for size in sizes:
                    found = measure("bench.load", kind, program, "-n", size, *shape)
                    lines.append((kind.name, size, *(found[column] for column in COLUMNS)))
    title = f"### {given.turns} turns, prompts {given.first} + 500 a turn, replies 120 after {given.delay_ms:g} ms"
    return f"{title}\n\n" + table(("proxy", "sessions", *HEADINGS), lines)


def session_table(given: argparse.Namespace, scratch: Path) -> str:
    lines: list[Sequence[object]] = []
    with engine(given.tokenizer, 0, "--turns", 200, "--first", 20_000, "--growth", 200) as fake:
        for kind in (GATEWAY, PEER) if given.peer_sizes else (GATEWAY,):
            with proxy(kind, fake.url, given.tokenizer, scratch / "session") as program:
                found = measure("bench.long_session", kind, program, "--exports", ",".join(kind.exports))
            read = "; ".join(
                f"{path.split('}')[1]} {cost['mb']} MB {cost['ms']:.0f} ms" for path, cost in found["exports"].items()
            )
            turn = f"{found['first_turns_ms']} / {found['last_turns_ms']}"
            lines.append((kind.name, found["turns"], found["rss_mb"], turn, read, found["lost"]))
    headings = ("proxy", "turns", "RSS grown MB", "turn ms, first / last", "reading back", "lost")
    return "### One session of 200 turns that ends at 60k tokens\n\n" + table(headings, lines)


def drift_table(given: argparse.Namespace, scratch: Path) -> str:
    kinds = (GATEWAY, PEER) if given.peer_sizes else (GATEWAY,)
    shown: dict[str, list[object]] = {}
    port = free_port()
    with running(command("bench.drift_engine", "--tokenizer", given.tokenizer, "--port", port), port) as fake:
        for kind in kinds:
            with proxy(kind, fake.url, given.tokenizer, scratch / "drift") as program:
                found = measure("bench.drift", kind, program, "--engine", fake.url)
            for case in found["cases"]:
                shown.setdefault(case["case"], []).append(f"{case['rows']} / {case['kept']} / {case['ratio']}")
    headings = ("what the model samples", *(f"{kind.name}: rows / trained once / tokens" for kind in kinds))
    title = "### Ten turns whose text re-tokenizes differently; ideal 1 row, 100 % of sampled tokens, 1.0 x the tokens"
    return f"{title}\n\n" + table(headings, [(name, *cells) for name, cells in shown.items()])


def table(headings: Sequence[object], lines: Sequence[Sequence[object]]) -> str:
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows) + "\n"


PARTS = {"load": load_table, "session": session_table, "drift": drift_table}


def sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",") if size]


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--tokenizer", type=Path, required=True)
    found.add_argument("--parts", default=",".join(PARTS))
    found.add_argument("--sizes", type=sizes, default="1,64,256,1024,2000")
    found.add_argument("--peer-sizes", type=sizes, default="1,64,256", help="empty: leave openenv's proxy out")
    found.add_argument("--turns", type=int, default=10)
    found.add_argument("--first", type=int, default=4000)
    found.add_argument("--delay-ms", type=float, default=200.0)
    found.add_argument("--out", type=Path)
    given = found.parse_args()
    given.tokenizer = given.tokenizer.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        text = "\n".join(PARTS[part](given, Path(scratch)) for part in given.parts.split(","))
    print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
