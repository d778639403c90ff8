"""Policies for rollouts of several turns: they look around the task's folder before they solve it as the teacher does.

    TEACHER_TASKS=TASKS openenv-harbor rollout --engine 'scripted:scripts/bench/looking.py:talk?noncanonical=0.01' \
        --tokenizer MODEL --dataset TASKS --harness mini-swe-agent,pi --rotate every --out OUT

`look` only calls tools; `talk` says a sentence before every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harbor_env.gateway.types import Message, Tool
from scripts.teacher import SHELLS, shell_call, solve

LOOKS = ("pwd", "ls -la /app", "wc /app/*", "head -n 3 /app/*", "tail -n 3 /app/*", "file /app/* || true")


def look(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Each of LOOKS, then the solution, then the word that it is done."""
    seen = sum(message.role == "tool" for message in messages)
    shell = next((tool for tool in tools if tool.name.lower() in SHELLS), None)
    if shell is not None and seen < len(LOOKS):
        return Message("assistant", tool_calls=(shell_call(shell, LOOKS[seen]),))
    # The teacher takes any tool result for its own, so it is shown none before it has had its turn.
    left = [message for message in messages if message.role != "tool"] if seen == len(LOOKS) else messages
    return solve(left, tools)


def talk(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """As `look`, with words of its own before every call."""
    reply = look(messages, tools)
    return replace(reply, content="Let me see what there is.") if reply.tool_calls else reply
