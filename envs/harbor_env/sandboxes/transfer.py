"""Files in and out of a sandbox, always unpacked and read by a process inside it.

Invariant: a link made inside is followed inside or not at all, so no path of the host is read or written through it.
"""

from __future__ import annotations

import asyncio
import os
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import DEFAULT_PATH
from harbor_env.sandboxes.sandbox import Command, Completed, Sandbox

LIMIT = 8 << 30
"""Bytes one transfer out of a sandbox may have: a sparse file must not fill the host's disk."""
_TIMEOUT_S = 600.0
_PUT_FILE = (
    'set -e; t=$1; [ ! -d "$t" ] || t=${t%/}/$2; mkdir -p -- "${t%/*}/"; rm -f -- "$t"; cat >"$t"; chmod "$3" "$t"'
)
_PUT_DIR = 'mkdir -p -- "$1" && tar -xpf - --same-owner -C "$1"'


@dataclass(frozen=True, slots=True)
class Owned:
    """Whose uploaded files become ("user[:group]" of the sandbox; "" for root) and their mode ("" for their own)."""

    owner: str = ""
    mode: str = ""

    def stamp(self, member: tarfile.TarInfo) -> tarfile.TarInfo:
        user, _, group = self.owner.partition(":")
        member.uname, member.uid = _name_and_number(user)
        member.gname, member.gid = _name_and_number(group or user)
        if self.mode:
            member.mode = int(self.mode, 8)
        return member


def _name_and_number(text: str) -> tuple[str, int]:
    return ("", int(text or 0)) if not text or text.isdigit() else (text, 0)


async def upload_file(sandbox: Sandbox, source: Path, target: str) -> None:
    """Copy a file, with its mode, to a path or into a folder inside. A link at `target` is replaced."""
    with await asyncio.to_thread(source.open, "rb") as file:
        mode = f"{os.fstat(file.fileno()).st_mode & 0o7777:o}"
        done = await _run(sandbox, ("bash", "-c", _PUT_FILE, "put", target, source.name, mode), file.fileno())
    _check(done, f"{source} could not be copied to {target} in the sandbox")


async def upload_dir(sandbox: Sandbox, source: Path, target: str) -> None:
    """Copy what is in a folder into a folder inside, links as links."""
    await upload_tree(sandbox, await asyncio.to_thread(all_below, source), target)


def all_below(folder: Path) -> list[tuple[Path, str]]:
    """(path, name) of a folder and everything below it. Raises FileNotFoundError where it is none."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    below = ((path, path.relative_to(folder).as_posix()) for path in sorted(folder.rglob("*")))
    return [(folder, "."), *below]


async def upload_tree(
    sandbox: Sandbox, members: Iterable[tuple[Path, str]], target: str, owned: Owned = Owned()
) -> None:
    """Copy (source, name below `target`) pairs, folders without what is in them."""
    chosen = list(members)
    with tempfile.TemporaryFile(dir=sandbox.folder) as archive:
        await asyncio.to_thread(_pack, archive, chosen, owned)
        done = await _run(sandbox, ("bash", "-c", _PUT_DIR, "put", target), archive.fileno())
    _check(done, f"{chosen[0][0]} could not be copied to {target} in the sandbox")


def _pack(archive: IO[bytes], members: list[tuple[Path, str]], owned: Owned) -> None:
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for source, name in members:
            tar.add(source, arcname=name, recursive=False, filter=owned.stamp)
    archive.flush()
    archive.seek(0)


async def download_file(sandbox: Sandbox, source: str, target: Path) -> None:
    """Copy a regular file out, with its mode. A link at `source` is followed inside."""
    with tempfile.TemporaryFile(dir=sandbox.folder) as archive:
        folder, name = os.path.split(source.rstrip("/"))
        argv = ("tar", "-chf", "-", "--no-recursion", "-C", folder or "/", "--", f"./{name}")
        await _fetch(sandbox, argv, archive, source)
        await asyncio.to_thread(_unpack_file, archive, source, target)


async def download_dir(sandbox: Sandbox, source: str, target: Path, *, limit: int = LIMIT) -> list[str]:
    """Copy what is in a folder out, over what is there; returns what was left out and why (devices, links outward).

    Raises SandboxError beyond `limit` bytes.
    """
    with tempfile.TemporaryFile(dir=sandbox.folder) as archive:
        argv = ("tar", "-cf", "-", "--warning=no-file-changed", "-C", source, ".")
        await _fetch(sandbox, argv, archive, source, limit)
        return await asyncio.to_thread(_unpack_dir, archive, target)


async def _fetch(sandbox: Sandbox, argv: tuple[str, ...], archive: IO[bytes], source: str, limit: int = LIMIT) -> None:
    command = Command(argv, {"PATH": DEFAULT_PATH, "LC_ALL": "C"}, confined=False, file_limit=limit)
    done = await sandbox.pipe(command, archive.fileno(), timeout=_TIMEOUT_S)
    changed_while_read = done.code == 1
    if not changed_while_read:
        _check(done, f"{source} could not be read from the sandbox")
    archive.seek(0)


def _unpack_file(archive: IO[bytes], source: str, target: Path) -> None:
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        member = tar.next()
        content = tar.extractfile(member) if member is not None and member.isreg() else None
        if member is None or content is None:
            raise SandboxError(f"{source} in the sandbox is not a regular file")
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, content, member.mode & 0o777)


def _replace(target: Path, content: IO[bytes], mode: int) -> None:
    """Write beside `target` and rename, so that a link there is replaced and never followed."""
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=".incoming-")
    try:
        with os.fdopen(fd, "wb") as file:
            while chunk := content.read(1 << 20):
                file.write(chunk)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _unpack_dir(archive: IO[bytes], target: Path) -> list[str]:
    target.mkdir(parents=True, exist_ok=True)
    left_out = []
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        for member in tar:
            if member.isdev():
                left_out.append(f"{member.name}: not a file")
                continue
            try:
                tar.extract(member, target, filter="data")
            except (tarfile.FilterError, OSError, KeyError) as error:
                left_out.append(f"{member.name}: {error}")
    return left_out


async def _run(sandbox: Sandbox, argv: tuple[str, ...], stdin: int | None = None) -> Completed:
    command = Command(argv, {"PATH": DEFAULT_PATH, "LC_ALL": "C"}, stdin=stdin, confined=False)
    return await sandbox.run(command, timeout=_TIMEOUT_S)


def _check(done: Completed, what: str) -> None:
    if done.code != 0:
        raise SandboxError(f"{what}: {done.stderr.strip() or f'exit code {done.code}'}")
