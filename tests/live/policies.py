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
        command = f"echo $(({' + '.join(map(str, numbers))})) > /app/answer.txt && echo 'wrote the sum'"
        return _say(f"{len(numbers)} notes, so the sum is due.", "Writing the sum — 合計.", command, tools)
    note = following[-1] if following else start[1]
    thought = f"Note {len(numbers) + 1} is {note}.\n\nIts number comes next; “{len(numbers)}” so far."
    return _say(thought, f"Reading `{note}` …", f"cat {start[2]}/{note}", tools)


def _say(thought: str, text: str, command: str, tools: Sequence[Tool]) -> Message:
    shell = next((tool for tool in tools if tool.name.lower() in ("bash", "run_shell_command", "shell")), None)
    if shell is None:
        return Message("assistant", "There is no shell here.", reasoning=thought)
    call = ToolCall("", shell.name, json.dumps({"command": command}, ensure_ascii=False))
    return Message("assistant", text, reasoning=thought, tool_calls=(call,))


def _last(tools: Sequence[Tool]) -> Message:
    """How a run ends: with a command for mini-swe-agent, whose only tool is `bash`; with words everywhere else."""
    if [tool.name for tool in tools] == ["bash"]:
        return _say("Everything is written.", "Finished.", FINISHED, tools)
    return Message("assistant", "The sum is in /app/answer.txt.", reasoning="Everything is written.")
