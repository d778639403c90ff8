"""The command that goes on with a batch: the one that was typed, with its folder and without its secrets."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

SECRETS = {"--llm-api-key": "OPENENV_LLM_API_KEY", "--admin-key": "OPENENV_HARBOR_ADMIN_KEY"}
"""Flags nobody should find in a log, and the variables that stand for them."""


def again(words: Sequence[str], out: Path) -> str:
    """`words` as in `sys.argv`. Keys become variables to be set by whoever types it."""
    program = [sys.executable, "-m", "harbor_env.cli"] if words[0].endswith(".py") else [words[0]]
    kept = list(_kept(words[1:]))
    if not any(word == "--out" or word.startswith("--out=") for word in kept):
        kept += ["--out", str(out)]
    secret = [f"{SECRETS[flag]}=... " for flag in SECRETS if any(word.partition("=")[0] == flag for word in words)]
    return "".join(secret) + shlex.join([*program, *kept])


def _kept(words: Sequence[str]) -> Iterator[str]:
    skipping = False
    for word in words:
        flag, equals, _ = word.partition("=")
        if skipping or flag in SECRETS or word == "--no-resume":
            skipping = not skipping and flag in SECRETS and not equals
            continue
        yield word
