"""A fake harness small enough to read: forty lines of Python that talk Chat Completions from inside the sandbox.

Harbor runs it like any other, so that rollouts can be tested with a real trial, sandbox and gateway in a second.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from harbor.agents.agent_auth_resolution import ModelConnectionSpec
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.model_api_format import ModelApiFormat

from harbor_env.harnesses import Harness

PROGRAM = """
import json, os, subprocess, sys, urllib.request
url, key, task, habit = sys.argv[1:]
tool = {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
messages = [{"role": "user", "content": task}]
print("key", key, "at", url)
while habit != "silent":
    body = json.dumps({"model": "m", "messages": messages, "tools": [{"type": "function", "function": tool}]}).encode()
    head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    answer = json.load(urllib.request.urlopen(urllib.request.Request(url + "/chat/completions", body, head)))
    said = answer["choices"][0]["message"]
    messages.append(said)
    for call in said.get("tool_calls") or ():
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr})
    if not said.get("tool_calls"):
        break
    if habit == "forget":
        messages = [{"role": "user", "content": task + " It was tried already: " + messages[-1]["content"]}]
if habit == "hang":
    import time; time.sleep(600)
if habit == "fail":
    sys.exit("giving up")
"""


class TinyAgent(BaseInstalledAgent):  # type: ignore[misc]
    """`habit` is what it does besides its work: nothing (""), stay silent, or hang or fail when its work is done.

    With "forget" it starts its conversation again after every command.
    """

    capabilities = AgentCapabilities(base_url=True, atif=True)
    MODEL_CONNECTION = ModelConnectionSpec(
        default_provider="openai",
        api_key_destination_names={"default": "OPENAI_API_KEY"},
        base_url_destination_names={"default": "OPENAI_BASE_URL"},
        supported_api_formats=[ModelApiFormat.OPENAI_CHAT_COMPLETIONS],
        default_api_format_by_provider={"default": ModelApiFormat.OPENAI_CHAT_COMPLETIONS},
    )

    def __init__(self, *args: Any, habit: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._habit = habit

    @staticmethod
    def name() -> str:
        return "tiny"

    def version(self) -> str:
        return "1"

    async def install(self, environment: BaseEnvironment) -> None:
        return None

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        words = [
            "python3",
            "-c",
            PROGRAM,
            str(self._base_url),
            self.extra_env["OPENAI_API_KEY"],
            instruction,
            self._habit,
        ]
        done = await environment.exec(f"{shlex.join(words)} >/logs/agent/tiny.txt 2>&1")
        if done.return_code:
            raise NonZeroAgentExitCodeError(f"Command failed (exit {done.return_code}): {shlex.join(words)}")


TINY = Harness("tiny", "tests.tiny_harness:TinyAgent", "chat", base_url_suffix="/v1")
FORGETFUL = replace(TINY, name="forgetful", kwargs={"habit": "forget"})


def write_task(folder: Path, *, reward: str = '{"reward": %s}', name: str = "reward.json", seconds: float = 60) -> Path:
    """A Harbor task that is solved by /app/answer.txt holding 42; the verifier writes `reward` as the file `name`."""
    files = {
        "task.toml": f'schema_version = "1.4"\n[task]\nname = "tests/{folder.name}"\n[agent]\ntimeout_sec = {seconds}\n'
        '[environment]\nworkdir = "/app"\nnetwork_mode = "no-network"\n',
        "instruction.md": "Write 42 into /app/answer.txt.\n",
        "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\n",
        "tests/test.sh": _TEST.replace("REWARD", reward).replace("FILE", name) if reward else "exit 0\n",
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def write_answer() -> str:
    return json.dumps({"command": "echo 42 > /app/answer.txt"})


_TEST = """#!/bin/bash
score=0; [ "$(cat /app/answer.txt 2>/dev/null)" = 42 ] && score=1
printf 'REWARD' "$score" > /logs/verifier/FILE
"""
