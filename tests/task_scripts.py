"""The generator of tasks under `scripts/`, importable, and its scripts run in a plain folder instead of a sandbox."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

# `python3` is the interpreter of the tests: a shim that looks for one would take most of the time.
ENV = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}

make_tasks = importlib.import_module("make_tasks")
grade = importlib.import_module("task_families.grade")


def reward_in_a_folder(task: Path, folder: Path, *, solved: bool) -> float:
    """The reward of `task`, run in `folder` with its absolute paths mapped there; with its solution, or untouched."""
    shutil.copytree(task / "environment" / "data", folder / "app")
    shutil.copytree(task / "tests", folder / "tests")
    for script in ([task / "solution" / "solve.sh"] if solved else []) + [task / "tests" / "test.sh"]:
        text = re.sub(r"(?<= )(?=/(app|logs|tests|tmp)\b)", str(folder), script.read_text())
        (folder / "tmp").mkdir(exist_ok=True)
        done = subprocess.run(["bash", "-c", text], env=ENV, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{script}: {done.stderr}"
    reward = json.loads((folder / "logs" / "verifier" / "reward.json").read_text())
    assert set(reward) == {"reward"}
    return float(reward["reward"])
