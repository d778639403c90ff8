"""One rollout of a scripted policy on a gateway of its own, with what its engine says it was asked."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from harbor_env.config import GatewayConfig
from harbor_env.gateway.process import gateway_process
from harbor_env.records import read_results
from tests.live import proofs
from tests.live.fake_wire import BadWire, Break, bad_wire
from tests.live.logged_engine import read_log
from tests.live.rollouts import AGENT_SECONDS, HABITS, REPOSITORY, TASK, Count, Ran
from tests.tokenizers import qwen3_dir

ENGINE = "tests.live.logged_engine:open_logged?policy=tests.live.{policy}&log={log}&window={window}&" + HABITS
WINDOW = 131_072
PATIENCE = 20.0
"""Seconds a bad wire waits for an answer: far more than a scripted one takes."""


async def run_alone(
    out: Path, harness: str, policy: str, *, window: int = WINDOW, breaks: Mapping[int, Break] | None = None
) -> tuple[Ran, BadWire | None]:
    """The trail, followed by `policy` in a `window` of tokens; with `breaks`, over a wire that breaks."""
    log, gateway_log = out / "engine.jsonl", out / "gateway.log"
    engine = ENGINE.format(policy=policy, log=log, window=window)
    config = GatewayConfig(engine=engine, tokenizer=str(qwen3_dir()), data=out / "gateway")
    wire = None
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(gateway_process(config, gateway_log))
        if breaks is not None:
            wire = await stack.enter_async_context(bad_wire(gateway.url, breaks, PATIENCE))
        command = [sys.executable, "-m", "harbor_env.cli", "rollout", "--json", "--out", str(out / "rollout")]
        command += ["--harness", harness, "--task", TASK.name, "--agent-timeout", str(AGENT_SECONDS)]
        command += ["--gateway", wire.url if wire else gateway.url, "--admin-key", gateway.admin_key]
        cli = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdout=asyncio.subprocess.DEVNULL)
        await cli.wait()
    [result] = read_results(out / "rollout").values()
    turns: list[dict[str, Any]] = json.loads((out / "rollout" / result.trace).read_bytes())["turns"]
    rows = [json.loads(line) for line in (out / "rollout" / result.rows).read_text().splitlines()]
    return Ran(result, turns, rows, read_log(log)), wire


def record(harness: str, case: str, ran: Ran, tokens: Count, note: str) -> None:
    """Keep what a run that held came to."""
    facts = {"reward": ran.result.reward, "turns": len(ran.turns), "rows": tokens.rows, "trained": tokens.share}
    proofs.record(harness, case, {**facts, "sampled": tokens.sampled, "findings": ran.result.findings, "note": note})
