"""What a person, or a program with --json, sees of a batch while it runs and when it ends.

On a terminal a table of the harnesses and of what runs stands below the finished rollouts; elsewhere every line is
plain and final, and one of them in a while says how the batch stands.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from harbor_env.batch import Job
from harbor_env.cli.progress import Progress
from harbor_env.cli.summary import failure, result_line, summary
from harbor_env.outcome import RolloutResult
from harbor_env.records import RESULTS, ROWS, settled
from harbor_env.results_table import TABLE
from harbor_env.rollout import GatewayAddress
from harbor_env.tally import count

EVERY = 30.0
"""Seconds between two lines on how the batch stands, where there is no terminal to show it all along."""


class Report:
    """Use as a context manager around the batch; the summary comes when it ends, however it ends.

    `again` is the command that goes on with the batch.
    """

    def __init__(
        self, out: Path, sandbox: str, *, as_json: bool = False, concurrency: int = 1, again: str = ""
    ) -> None:
        self._out = out
        self._sandbox = sandbox
        self._again = again
        self._concurrency = concurrency
        self._json = _own_stdout() if as_json else None
        self._console = Console(stderr=as_json, highlight=False, soft_wrap=True)
        self._progress = Progress()
        self._jobs: Sequence[Job] = ()
        self._live = Live(get_renderable=self._shown, console=self._console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        if self._progress.results:
            for line in summary(self._progress.results):
                self._line(line)
            self._line(f"{self._out}: {RESULTS} and {TABLE} (a line per rollout), {ROWS} (to train on), traces/, logs/")
        if self._jobs:
            self._go_on(interrupted=kind is asyncio.CancelledError)

    def say(self, text: str) -> None:
        """Progress that belongs to no rollout."""
        self._line(text, "dim")

    def abandon(self) -> None:
        """Give the terminal back: this process is about to end without another word."""
        self._live.stop()

    def gateway(self, address: GatewayAddress) -> None:
        """What serves the batch, and whether what it captures can be trained on."""
        trainable = {"tokens": "exact tokens", "logprobs": "log probabilities only: not trainable"}
        level = trainable.get(address.level, "text only: evaluation, not trainable") if address.level else "not graded"
        tito = f", deltas {address.tito}" if address.tito else ""
        window = f", window {address.window:,} tokens" if address.window else ""
        self.say(f"Engine: {address.model} ({level}{tito}{window})")

    def plan(self, jobs: Sequence[Job]) -> None:
        """What will be run or was run already."""
        self._jobs = jobs
        self._progress.plan(jobs)

    async def beat(self) -> None:
        """Say in a while how the batch stands, until cancelled."""
        while not self._console.is_terminal:
            await asyncio.sleep(EVERY)
            self.say(self._progress.line())

    def skipped(self, job: Job, result: RolloutResult) -> None:
        self._progress.results.append(result)
        self._print_json(result)
        self._line(f"{self._head(job)}: settled by an earlier run", "dim")
        self._line(result_line(result), "dim")

    def started(self, job: Job) -> None:
        self._progress.started(job)
        if not self._console.is_terminal and self._concurrency == 1:
            self._line(f"{self._head(job)} ...")

    def phase(self, job: Job, phase: str) -> None:
        self._progress.phase(job, phase)

    def tried(self, job: Job, result: RolloutResult) -> None:
        self._line(f"{self._head(job)}: try {result.tries} failed and is repeated", "yellow")
        self._line(f"   retry {failure(result)}", "yellow")

    def ended(self, job: Job, result: RolloutResult) -> None:
        self._progress.ended(job, result)
        self._print_json(result)
        if self._console.is_terminal or self._concurrency > 1:
            self._line(self._head(job))
        self._line(result_line(result), "green" if result.ok else "red")

    def _go_on(self, *, interrupted: bool) -> None:
        """What stays, and how to get the rest."""
        kept = sum(settled(result) for result in self._progress.results)
        rest = len(self._jobs) - kept
        if interrupted:
            self._line(f"Interrupted: {kept} of {count(len(self._jobs), 'rollout')} kept. Go on with:")
        elif rest:
            self._line(f"{count(rest, 'rollout')} failed by infrastructure, not by the agent. Try them again with:")
        if interrupted or rest:
            self._line(f"  {self._again}")

    def _head(self, job: Job) -> str:
        return f"[{job.harness} / {self._sandbox}] task {job.number}: {job.task.name}" + (
            f" (attempt {job.attempt})" if job.attempt else ""
        )

    def _print_json(self, result: RolloutResult) -> None:
        if self._json is not None:
            self._json.write(orjson.dumps(asdict(result)).decode() + "\n")
            self._json.flush()

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style))

    def _shown(self) -> Group:
        return self._progress.table() if self._jobs else Group()


def _own_stdout() -> TextIO:
    """Standard output for the JSON lines alone; what else is printed, here or by a child, goes to standard error."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own
