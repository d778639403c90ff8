"""What a person, or a program with --json, sees of a batch while it runs and when it ends.

On a terminal the running rollouts stand below the finished ones; elsewhere every line is plain and final.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harbor_env.batch import Job
from harbor_env.outcome import one_line
from harbor_env.rollout import GatewayAddress, RolloutResult


class Report:
    """Use as a context manager around the batch; the summary comes when it ends, however it ends."""

    def __init__(self, out: Path, sandbox: str, *, as_json: bool = False, concurrency: int = 1) -> None:
        self._out = out
        self._sandbox = sandbox
        self._as_json = as_json
        self._concurrency = concurrency
        self._console = Console(stderr=as_json, highlight=False, soft_wrap=True)
        self._running: dict[str, tuple[Job, str, float]] = {}
        self._results: list[RolloutResult] = []
        self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        if self._results:
            for line in summary(self._results):
                self._line(line)
            self._line(f"Traces, rows and logs: {self._out}")

    def say(self, text: str) -> None:
        """Progress that belongs to no rollout."""
        self._line(text, "dim")

    def gateway(self, address: GatewayAddress) -> None:
        """What serves the batch, and whether what it captures can be trained on."""
        trainable = {"tokens": "exact tokens", "logprobs": "log probabilities only: not trainable"}
        level = trainable.get(address.level, "text only: evaluation, not trainable") if address.level else "not reached"
        tito = f", deltas {address.tito}" if address.tito else ""
        window = f", window {address.window:,} tokens" if address.window else ""
        self.say(f"Engine: {address.model} ({level}{tito}{window})")
        if not address.level:
            self.say("The engine has not answered yet. If it is down, agents only retry: start it or correct its URL.")

    def skipped(self, job: Job, result: RolloutResult) -> None:
        self._results.append(result)
        self._line(f"{self._head(job)}: settled by an earlier run", "dim")
        self._line(result_line(result), "dim")

    def started(self, job: Job) -> None:
        self._running[job.name] = (job, "start", time.monotonic())
        if not self._console.is_terminal and self._concurrency == 1:
            self._line(f"{self._head(job)} ...")

    def phase(self, job: Job, phase: str) -> None:
        self._running[job.name] = (job, phase, self._running[job.name][2])

    def ended(self, job: Job, result: RolloutResult) -> None:
        self._running.pop(job.name, None)
        self._results.append(result)
        if self._as_json:
            sys.stdout.write(orjson.dumps(asdict(result)).decode() + "\n")
            sys.stdout.flush()
        if self._console.is_terminal or self._concurrency > 1:
            self._line(self._head(job))
        self._line(result_line(result), "green" if result.ok else "red")

    def _head(self, job: Job) -> str:
        return f"[{job.harness} / {self._sandbox}] task {job.number}: {job.task.name}" + (
            f" (attempt {job.attempt})" if job.attempt else ""
        )

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style))

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for job, phase, began in self._running.values():
            table.add_row(Text(self._head(job), overflow="ellipsis", no_wrap=True), phase, f"{now - began:.0f}s")
        return table


def result_line(result: RolloutResult) -> str:
    """One finished rollout on one line."""
    seconds = f"{result.seconds.get('total', 0):.0f}s"
    if result.reason is not None:
        return f"   FAIL  {result.reason.kind}: {one_line(result.reason.sentence)}  {_counts(result)}{seconds}"
    flags = "".join(f"  {flag}" for flag in result.flags)
    level = "" if result.level in ("tokens", "") else f"  level={result.level}"
    return f"   ok    reward={result.reward:.2f}  {_counts(result)}atif={result.atif.status}{level}{flags}  {seconds}"


def _counts(result: RolloutResult) -> str:
    if not result.counts:
        return ""
    counts = result.counts
    return "".join(
        f"{label}={counts.get(key, 0)}  "
        for label, key in (("turns", "turns"), ("roots", "roots"), ("rows", "rows"), ("tokens", "sampled_tokens"))
    )


def summary(results: Sequence[RolloutResult]) -> list[str]:
    """A line per harness, then failures by reason."""
    by_harness: dict[str, list[RolloutResult]] = defaultdict(list)
    for result in results:
        by_harness[result.harness].append(result)
    lines = ["", f"{'harness':<20}{'n':>4}{'ok':>4}{'passed':>8}{'reward':>8}{'turns':>7}{'rows':>6}{'tokens':>9}"]
    for name, group in sorted(by_harness.items()):
        rewards = [result.reward for result in group if result.reward is not None]
        passed = f"{sum(reward >= 1 for reward in rewards) / len(rewards):.0%}" if rewards else "-"
        mean = f"{sum(rewards) / len(rewards):.2f}" if rewards else "-"
        turns, rows, tokens = (
            sum(result.counts.get(key, 0) for result in group) for key in ("turns", "rows", "sampled_tokens")
        )
        lines.append(f"{name:<20}{len(group):>4}{len(rewards):>4}{passed:>8}{mean:>8}{turns:>7}{rows:>6}{tokens:>9}")
    kinds = Counter(result.reason.kind for result in results if result.reason is not None)
    if kinds:
        lines.append("failed: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    return lines
