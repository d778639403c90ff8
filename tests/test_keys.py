"""No key stands on a command line for longer than it takes to read it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harbor_env.keys import without_keys


@pytest.mark.parametrize(
    ("words", "kept", "moved"),
    [
        (["serve", "--port", "1"], ["serve", "--port", "1"], {}),
        (["serve", "--admin-key", "k", "--port", "1"], ["serve", "--port", "1"], {"OPENENV_HARBOR_ADMIN_KEY": "k"}),
        (["info", "--llm-api-key=a=b"], ["info"], {"OPENENV_LLM_API_KEY": "a=b"}),
        (["serve", "--admin-key"], ["serve", "--admin-key"], {}),
    ],
)
def test_options_with_a_key_become_variables(words: list[str], kept: list[str], moved: dict[str, str]) -> None:
    assert without_keys(words) == (kept, moved)


def test_the_program_runs_on_without_its_key_among_its_words() -> None:
    show = "print(os.environ['OPENENV_HARBOR_ADMIN_KEY'], open('/proc/self/cmdline').read().split(chr(0))[-2:])"
    program = f"import os; from harbor_env.keys import hide_keys; hide_keys(); {show}"
    command = [sys.executable, "-c", program, "serve", "--admin-key", "k-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "k-1 ['serve', '']\n"
