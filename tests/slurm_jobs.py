"""The batch scripts run as plain bash: what Slurm would do beside them is done by fakes, and the engine is one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
FAKES = ROOT / "tests" / "data" / "slurm"


class Jobs:
    """Scripts run as Slurm would run them on one node, in one run's folder, over a fake engine."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.run = folder / "run"
        self.asked = folder / "asked"
        self.local = folder / "local"
        self.local.mkdir()
        self._stack = stack
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OPENENV_"))},
            "PATH": f"{FAKES / 'bin'}:{os.environ['PATH']}",
            "RUN": str(self.run),
            "ASKED": str(self.asked),
            "TMPDIR": str(self.local),
            "SERVER_ENV": sys.prefix,
            "PYTHONPATH": str(ROOT),
            "HOST": "127.0.0.1",
            "POLL": "0.1",
            "MODEL": "any",
            "ENGINE_COMMAND": f"{sys.executable} {FAKES / 'fake_engine.py'} $PORT",
            "TRAIN_COMMAND": f"{sys.executable} {FAKES / 'fake_trainer.py'}",
        }

    def start(self, script: str, **variables: str) -> subprocess.Popen[str]:
        job = subprocess.Popen(
            ["bash", f"slurm/{script}"],
            cwd=ROOT,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._stack.enter_context(job)
        self._stack.callback(job.terminate)
        return job

    def finish(self, script: str, **variables: str) -> tuple[int, str]:
        """Its exit status, and what it printed."""
        return self.end_of(self.start(script, **variables))

    def end_of(self, job: subprocess.Popen[str], told: int = 0) -> tuple[int, str]:
        if told:
            job.send_signal(told)
        printed, _ = job.communicate()
        return job.returncode, printed

    def serve_nothing_at(self, *names: str) -> None:
        """As if services of these names were up: something answers at their address."""
        url = (self.run / "engine.url").read_text()
        for name in names:
            (self.run / f"{name}.url").write_text(url)

    def processes(self) -> list[psutil.Process]:
        """Every process of the run."""
        return [process for process in psutil.process_iter() if self._belongs(process)]

    def left(self) -> tuple[list[psutil.Process], list[Path]]:
        return self.processes(), [*self.local.iterdir(), *self.run.glob("*.url")]

    def _belongs(self, process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get("RUN") == str(self.run))
        except psutil.Error:
            return False


@contextmanager
def slurm_jobs(folder: Path) -> Iterator[Jobs]:
    """Every job that was started in the block is told to end at its end."""
    with ExitStack() as stack:
        yield Jobs(folder, stack)


def appears(path: Path, job: subprocess.Popen[str]) -> Callable[[], bool]:
    """Whether the file is there; AssertionError with what the job printed where it ended before."""

    def check() -> bool:
        assert path.exists() or job.poll() is None, job.communicate()
        return path.exists()

    return check
