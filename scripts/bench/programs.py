"""Child programs of a benchmark: started, awaited until they answer, ended by their own process id."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
READY_WITHIN = 600.0
"""Seconds: a machine whose cores train something else starts a program many times slower."""


@dataclass(frozen=True)
class Program:
    """A program that answers at `url`."""

    url: str
    pid: int


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def command(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def gateway_command(engine: str, tokenizer: Path, data: Path, port: int) -> list[str]:
    flags = ("--llm-url", engine, "--model", "fake", "--tokenizer", tokenizer, "--port", port, "--data", data)
    return command("harbor_env.cli", "gateway", *flags)


def start(arguments: Sequence[str], port: int, *, new_group: bool = False) -> subprocess.Popen[bytes]:
    """Start a program and return once `/health` answers at `port`. RuntimeError: it ended, or never answered.

    With `new_group` its process id is also that of its group, so that it can be killed with its workers.
    """
    environment = {**os.environ, "PYTHONPATH": f"{SCRIPTS}:{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, start_new_session=new_group)
    until = time.monotonic() + READY_WITHIN
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
        else:
            return process
    process.kill()
    process.wait()
    raise RuntimeError(f"did not answer on port {port}: {' '.join(arguments)}")


@contextmanager
def running(arguments: Sequence[str], port: int) -> Iterator[Program]:
    """A program for the length of a block."""
    process = start(arguments, port)
    try:
        yield Program(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
