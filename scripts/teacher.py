"""A teacher that solves tasks by their own solutions, in whichever shell a harness offers; an engine for SFT rollouts.

    TEACHER_TASKS=FOLDER openenv-harbor rollout --engine 'scripted:scripts/teacher.py:solve' --tokenizer MODEL \
        --dataset FOLDER --split train --harness mini-swe-agent,pi --out OUT

It knows a task by its instruction, and answers with the body of `solution/solve.sh` as one command. mini-swe-agent is
told in the same command that the work is done; any other harness hears it in words after the command has run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from harbor_env.gateway.types import Message, Tool, ToolCall

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SHELLS = ("bash", "shell", "exec_command", "run_shell_command", "terminal")
PREAMBLE = ("#!", "set -", "cd /app")


def solve(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """The next assistant message: the solution, then the word that it is done."""
    shell = next((tool for tool in tools if tool.name.lower() in SHELLS), None)
    told = "\n".join(message.content for message in messages if message.role in ("system", "user"))
    if shell is None:
        return Message("assistant", "There is no shell here.")
    if any(message.role == "tool" for message in messages):
        return Message("assistant", "Done.")
    solution = next((body for instruction, body in known_tasks() if instruction in told), "")
    command = f"cd /app && {solution}" if solution else "true"
    if "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in told:
        command = f"{command} && {SUBMIT}"
    return Message("assistant", tool_calls=(shell_call(shell, command),))


def shell_call(shell: Tool, command: str) -> ToolCall:
    """The command in the field the shell takes it in."""
    field = "cmd" if "cmd" in shell.parameters.get("properties", {}) else "command"
    return ToolCall("", shell.name, json.dumps({field: command}))


@cache
def known_tasks() -> tuple[tuple[str, str], ...]:
    """(instruction, solution) of every task below TEACHER_TASKS, longest instruction first: one may hold another."""
    folder = Path(os.environ["TEACHER_TASKS"])
    tasks = [
        ((task.parent / "instruction.md").read_text().strip(), body_of((task.parent / "solution/solve.sh").read_text()))
        for task in sorted(folder.rglob("task.toml"))
    ]
    return tuple(sorted(tasks, key=lambda task: -len(task[0])))


def body_of(script: str) -> str:
    """The commands of a solution on one line where they can stand on one, else as they are."""
    lines = [line for line in script.splitlines() if line.strip() and not line.startswith(PREAMBLE)]
    return lines[0] if len(lines) == 1 else "\n".join(lines)
