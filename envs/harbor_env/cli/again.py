"""The command that goes on with a batch: the one that was typed, with its folder and without its secrets."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from harbor_env.keys import without_keys


def again(words: Sequence[str], out: Path, keys: Sequence[str] = ()) -> str:
    """`words` as in `sys.argv`; `keys` are the variables that brought keys, and have to be set again."""
    program = [sys.executable, "-m", "harbor_env.cli"] if words[0].endswith(".py") else [words[0]]
    kept = [word for word in without_keys(words[1:])[0] if word != "--no-resume"]
    if not any(word == "--out" or word.startswith("--out=") for word in kept):
        kept += ["--out", str(out)]
    command = shlex.join([*program, *kept])
    return f"{command}  # with {' and '.join(keys)} set" if keys else command
