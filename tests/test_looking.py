"""The scripted policy that looks around before it solves a task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harbor_env.gateway.types import Message, Tool
from scripts.bench.looking import LOOKS, look, talk
from scripts.teacher import known_tasks

SHELL = Tool("bash", parameters={"type": "object", "properties": {"command": {"type": "string"}}})


def test_it_looks_then_solves_then_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "task.toml").touch()
    (tmp_path / "instruction.md").write_text("Count the lines.")
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solve.sh").write_text("#!/bin/sh\nwc -l < a > b\n")
    monkeypatch.setenv("TEACHER_TASKS", str(tmp_path))
    known_tasks.cache_clear()
    messages, commands = [Message("user", "Count the lines.")], []
    while (reply := talk(messages, [SHELL])).tool_calls:
        commands.append(json.loads(reply.tool_calls[0].arguments)["command"])
        assert reply.content
        assert look(messages, [SHELL]).content == ""
        messages += [reply, Message("tool", "ok", tool_call_id="call_0")]
    known_tasks.cache_clear()
    assert commands == [*LOOKS, "cd /app && wc -l < a > b"]
    assert reply == Message("assistant", "Done.")
