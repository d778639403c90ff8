"""Play every drift case through one proxy and count what it would train on.

    python -m bench.drift --url URL --engine URL --sessions gateway|peer

Per case: rows, the share of sampled tokens trained exactly once, and tokens over all rows against the ideal of one row.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import aiohttp
import orjson

from bench.drift_cases import CASES, TURNS, Case
from bench.load import admin, open_sessions

SYSTEM = "You are a coding agent (drift). " + "Follow the repository's conventions and keep changes small. " * 40
RESULT = "src/parser.py:{turn}: def parse(self, text):\n" + "    line of tool output 12345 and /usr/lib/python3\n" * 18
PARAMETERS = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
    "required": ["command"],
}
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "Run a command.", "parameters": PARAMETERS}}]


async def play_case(http: aiohttp.ClientSession, url: str, key: str, case: Case) -> None:
    """The harness: sends back what it was answered, and one tool result per call."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Fix the tests."},
    ]
    for turn in range(TURNS):
        body = {"model": "fake", "messages": messages, "tools": TOOLS, "temperature": 1.0, "max_tokens": 4096}
        headers = {"authorization": f"Bearer {key}"}
        async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
            answer.raise_for_status()
            message = (await answer.json())["choices"][0]["message"]
        kept = ("content", "tool_calls", *(("reasoning_content", "reasoning") if case.echo else ()))
        messages.append({"role": "assistant", **{name: message[name] for name in kept if message.get(name)}})
        messages[-1].setdefault("content", None)
        for call in message.get("tool_calls") or ():
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": RESULT.format(turn=turn)})


async def rows_of(http: aiohttp.ClientSession, given: argparse.Namespace, session_id: str) -> list[tuple[int, int]]:
    """(tokens, trained tokens) of each row that trains something."""
    path = "rollout" if given.sessions == "peer" else "export?format=rows"
    async with http.get(f"{given.url}/sessions/{session_id}/{path}", headers=admin(given)) as answer:
        answer.raise_for_status()
        raw = await answer.read()
    if given.sessions == "peer":
        found = [row for row in orjson.loads(raw)["sequences"] if row["role"] == "agent"]
        return [(len(row["input_ids"]), row["n_trainable"]) for row in found]
    return [(len(row["input_ids"]), row["trained_tokens"]) for row in map(orjson.loads, raw.splitlines())]


async def run(given: argparse.Namespace) -> dict[str, Any]:
    cases = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as http:
        for case in CASES.values():
            async with http.post(f"{given.engine}/case", json={"name": case.name}) as answer:
                answer.raise_for_status()
            given.options = (
                {"template_kwargs": {"enable_thinking": case.thinking}} if given.sessions == "gateway" else {}
            )
            ((session_id, key),) = await open_sessions(http, given)
            await play_case(http, given.url, key, case)
            async with http.get(f"{given.engine}/sampled") as answer:
                asked = await answer.json()
            cases.append(judged(case, asked, await rows_of(http, given, session_id)))
    return {"cases": cases}


def judged(case: Case, asked: dict[str, list[int]], rows: list[tuple[int, int]]) -> dict[str, Any]:
    """The ideal is a row of everything between the first prompt and the last sampled token, each token once."""
    sampled, trained = sum(asked["replies"]), sum(trained for _, trained in rows)
    tokens, longest = sum(tokens for tokens, _ in rows), asked["prompts"][-1] + asked["replies"][-1]
    return {
        "case": case.name,
        "rows": len(rows),
        "kept": f"{100 * trained / sampled:.0f} %",
        "ratio": round(tokens / longest, 2),
    }


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("url", "engine"):
        found.add_argument(f"--{name}", required=True)
    found.add_argument("--sessions", choices=["gateway", "peer"], default="gateway")
    found.add_argument("--admin-key", default="")
    found.add_argument("--pid", type=int, help="not used: every measuring program takes it")
    found.add_argument("--dialect", help="not used: every measuring program takes it")
    given = found.parse_args()
    given.n = 1
    print(orjson.dumps(asyncio.run(run(given))).decode())


if __name__ == "__main__":
    main()
