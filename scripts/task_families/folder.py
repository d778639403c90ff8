"""Write one draft as a Harbor task folder (schema 1.4).

Layout: task.toml, instruction.md, environment/{Dockerfile,data/}, tests/{test.sh,grade.py,expected.json},
solution/solve.sh. The commands of solve.sh are separated by blank lines; each can be run in a shell of its own in /app.
Setting a sandbox up may use a network, so that an agent can be installed; the agent and the verifier have none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from task_families.draft import Draft, Family, Split

GRADER = Path(__file__).with_name("grade.py")

DOCKERFILE = """\
FROM python:3.12-slim
WORKDIR /app
COPY data/ /app/
"""
TEST_SH = """\
#!/usr/bin/env bash
mkdir -p /logs/verifier
exec python3 -I -B /tests/grade.py /app /tests/expected.json /logs/verifier/reward.json
"""
SOLVE_SH = """\
#!/usr/bin/env bash
set -euo pipefail
cd /app
"""
TASK_TOML = """\
schema_version = "1.4"

[task]
name = "openenv-harbor/{split}-{name}"
description = "{description}"
keywords = {keywords}

[metadata]
level = {level}
split = "{split}"
family = "{family}"
steps = {steps}

[environment]
build_timeout_sec = 300.0
workdir = "/app"

[agent]
timeout_sec = 900.0
network_mode = "no-network"

[verifier]
timeout_sec = 60.0
network_mode = "no-network"
"""


@dataclass(frozen=True, slots=True)
class Named:
    """A draft with its place: the folder name, the family and the split it was drawn for."""

    name: str
    family: Family
    split: Split
    draft: Draft
    instruction: str


def _task_toml(task: Named) -> str:
    return TASK_TOML.format(
        split=task.split,
        name=task.name,
        description=f"Level {task.family.level}: {task.family.name.replace('-', ' ')}",
        keywords=json.dumps([*task.draft.tags, f"level-{task.family.level}"]),
        level=task.family.level,
        family=task.family.name,
        steps=len(task.draft.solution),
    )


def contents(task: Named) -> dict[str, str]:
    """Every file of the task: its path in the folder and its text."""
    solution = "\n".join([SOLVE_SH, *(f"{command}\n" for command in task.draft.solution)])
    return {
        "task.toml": _task_toml(task),
        "instruction.md": task.instruction,
        "environment/Dockerfile": DOCKERFILE,
        **{f"environment/data/{path}": text for path, text in task.draft.files.items()},
        "tests/test.sh": TEST_SH,
        "tests/grade.py": GRADER.read_text(encoding="utf-8"),
        "tests/expected.json": json.dumps(task.draft.checks, indent=2) + "\n",
        "solution/solve.sh": solution,
    }


def write(task: Named, folder: Path) -> None:
    """Write the task into `folder`, which must not exist; scripts are executable."""
    for path, text in contents(task).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")
        file.chmod(0o755 if path.endswith(".sh") else 0o644)
