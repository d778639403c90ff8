"""A worker's process and the trainer it belongs to."""

from __future__ import annotations

import os
import select
import subprocess
import sys

WORKER = """
import os, time
from trl_integration.parent import end_with_parent
if os.fork() == 0:
    end_with_parent()
    print(os.getpid(), flush=True)
time.sleep(60)
"""

LATE = """
import os
from trl_integration.parent import end_with_parent
trainer = os.getpid()
if os.fork() == 0:
    while os.getppid() == trainer:
        os.sched_yield()
    print("late", flush=True)
    end_with_parent(trainer)
    print("alive", flush=True)
"""


def test_a_worker_whose_trainer_ended_while_it_was_starting_ends_too() -> None:
    said = subprocess.run([sys.executable, "-c", LATE], stdout=subprocess.PIPE, text=True, timeout=30)
    assert said.stdout == "late\n"


def test_a_worker_ends_with_a_trainer_that_was_killed() -> None:
    trainer = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    with trainer.stdout as said:
        worker = os.pidfd_open(int(said.readline()))
        try:
            trainer.kill()
            trainer.wait()
            ended, _, _ = select.select([worker], [], [], 10)
            assert ended
        finally:
            os.close(worker)
