"""Scripted policies that solve bundled tasks with the tools a harness offers, for rollouts without a model.

Each is a function of the conversation alone, so that a retry gets the same answer and nothing is remembered here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harbor_env.gateway.types import Message, Tool, ToolCall

FINISHED = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The command that ends a mini-swe-agent run."""


def follow_the_trail(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """The task `eight-step-trail`: read note after note, then write the sum. Thinks and talks on every turn."""
    told = "\n".join(message.content for message in messages if message.role == "user")
    start = re.search(r"Read (\S+) in (\S+?)\. It has a number", told)
    if start is None:
        return Message("assistant", "I see no trail to follow.")
    seen = "\n".join(message.content for message in messages if message.role == "tool")
    numbers = [int(number) for number in re.findall(r"Add (-?\d+)\.", seen)]
    following = re.findall(r"Then read ([\w-]+\.txt)\.", seen)
    if "wrote the sum" in seen:
        return _last(tools)
    if "This is the last note." in seen:
        command = f"echo {sum(numbers)} > /app/answer.txt && echo 'wrote the sum'"
        return _say(f"{len(numbers)} notes, so the sum is due.", "Writing the sum — 合計.", command, tools)
    note = following[-1] if following else start[1]
    thought = f"Note {len(numbers) + 1} is {note}.\n\nIts number comes next; “{len(numbers)}” so far."
    return _say(thought, f"Reading `{note}` …", f"cat {start[2]}/{note}", tools)


SHELLS = ("bash", "run_shell_command", "shell", "exec_command", "terminal")


def _say(thought: str, text: str, command: str, tools: Sequence[Tool]) -> Message:
    call = shell_call(command, tools)
    if call is None:
        return Message("assistant", "There is no shell here.", reasoning=thought)
    return Message("assistant", text, reasoning=thought, tool_calls=(call,))


def shell_call(command: str, tools: Sequence[Tool]) -> ToolCall | None:
    """`command` in whichever shell is offered, under the name its schema gives it, with what else that requires."""
    shell = next((tool for tool in tools if tool.name.lower() in SHELLS), None)
    if shell is None:
        return None
    fields = shell.parameters.get("properties", {})
    arguments: dict[str, object] = {
        name: FILLING.get(fields.get(name, {}).get("type"), "Go on.") for name in shell.parameters.get("required", ())
    }
    arguments["cmd" if "cmd" in fields else "command"] = command
    return ToolCall("", shell.name, json.dumps(arguments, ensure_ascii=False))


FILLING: dict[object, object] = {"boolean": False, "number": 1, "integer": 1}


def _last(tools: Sequence[Tool]) -> Message:
    """How a run ends: with a command for mini-swe-agent, whose only tool is `bash`; with words everywhere else."""
    if [tool.name for tool in tools] == ["bash"]:
        return _say("Everything is written.", "Finished.", FINISHED, tools)
    return Message("assistant", "The sum is in /app/answer.txt.", reasoning="Everything is written.")
