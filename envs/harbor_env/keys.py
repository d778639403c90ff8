"""Keys of this program: off its command line, which `ps` shows to everybody, and out of what its children inherit.

Invariant: a program that goes on past `hide_keys` has no key among its words; past `forget_keys`, none in its
environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

KEYS = {
    "--admin-key": "OPENENV_HARBOR_ADMIN_KEY",
    "--gateway-admin-key": "OPENENV_HARBOR_GATEWAY_ADMIN_KEY",
    "--llm-api-key": "OPENENV_LLM_API_KEY",
}
"""Every option that takes a key, and the variable that brings it as well."""


def without_keys(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words but for options with a key, and the variables that say the same. An option without a value stays."""
    kept: list[str] = []
    moved: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        flag, assigned, value = word.partition("=")
        if flag not in KEYS or (not assigned and (value := next(rest, "")) == ""):
            kept.append(word)
        else:
            moved[KEYS[flag]] = value
    return kept, moved


def hide_keys() -> None:
    """Run this program again without the keys among its words; returns where there are none."""
    words, moved = without_keys(sys.orig_argv[1:])
    if moved:
        os.execve(sys.executable, [sys.orig_argv[0], *words], {**os.environ, **moved})


def forget_keys() -> None:
    """Take this program's keys out of its environment once they are read.

    What runs harnesses and verifiers inherits it, and a task's file may name any variable there is.
    """
    for name in KEYS.values():
        os.environ.pop(name, None)
