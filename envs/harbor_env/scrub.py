"""Secrets out of the files a rollout leaves: a session's key and id grant its capture to whoever reads a log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LIMIT = 64 * 2**20
"""Files larger than this, in bytes, are removed rather than kept unread."""


def scrub_folder(folder: Path, secrets: Iterable[str]) -> int:
    """Replace every secret in every file below `folder` by stars of the same length; returns how many files had one.

    Symbolic links are removed: what they point at is not the rollout's.
    """
    needles = [secret.encode() for secret in secrets if secret]
    touched = 0
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            path.unlink()
        elif path.is_file():
            touched += _scrub_file(path, needles)
    return touched


def scrub_text(text: str, secrets: Iterable[str]) -> str:
    """The text with stars in the place of every secret."""
    for secret in secrets:
        text = text.replace(secret, "*" * len(secret)) if secret else text
    return text


def _scrub_file(path: Path, needles: list[bytes]) -> bool:
    if path.stat().st_size > LIMIT:
        path.unlink()
        return False
    content = path.read_bytes()
    clean = content
    for needle in needles:
        clean = clean.replace(needle, b"*" * len(needle))
    if clean == content:
        return False
    path.write_bytes(clean)
    return True


def tail(path: Path, lines: int = 40, limit: int = 4_000) -> str:
    """The last lines of a text file, at most `limit` bytes of it; "" where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - limit))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


def newest_tail(folder: Path) -> str:
    """The end of what a harness or verifier printed: the newest text file at the top of its folder, "" without one."""
    files = sorted(folder.glob("*.txt"), key=lambda path: path.stat().st_mtime) if folder.is_dir() else []
    return tail(files[-1]) if files else ""
