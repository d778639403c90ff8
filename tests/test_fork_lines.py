"""One fork server, lent to many: its lines know nothing of each other, and what ends at one harms no other."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.fork_line import Line, Said
from harbor_env.sandboxes.lending import Lender, Wanted, asking_pair, borrow
from harbor_env.sandboxes.warm import end_fork_servers, find_fork_server
from tests.sandbox_world import REPO, bash, needs_sandbox, until
from tests.warm_world import fork_server, served, tell, tiny_layer, wanted

WARM = Said()


@asynccontextmanager
async def lines(folder: Path, count: int) -> AsyncIterator[list[Line]]:
    """Lines to one fork server, which has one more."""
    async with fork_server(folder) as server:

        async def find(wanted: Wanted) -> Line:
            return server

        lending, asking = asking_pair()
        lender = Lender(lending, find)
        with asking:
            found = await asyncio.gather(*(borrow(asking, wanted(folder)) for _ in range(count)))
        yield found
        lender.close()
        for line in found:
            await line.stop()


def _open(pid: int | str) -> set[str]:
    """Sockets and mount namespaces a process has open."""
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            found.add(str(path.readlink()))
    return {link for link in found if re.match("socket:|mnt:", link)}


def _runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@needs_sandbox
async def test_lines_of_one_server_know_nothing_of_each_other_s_sandboxes(tmp_path: Path) -> None:
    async with lines(tmp_path, 2) as (one, other), served(one, tmp_path) as first, served(other, tmp_path) as second:
        told = await tell(first, "echo mine >/tmp/mine; KEY=secret tiny"), await tell(second, "ls /tmp >&2; tiny")
        assert [each["imported_in"] for each in told] == [one.pid, one.pid]
        assert (told[1]["seen"], told[1]["files"], "KEY" in told[1]["env"]) == ([None], [0, 1, 2], False)
        assert not (await bash(second, "ls /tmp")).stdout
        assert (one.heard(second), other.heard(first)) == ([], [])
        assert (one.heard(first), other.heard(second)) == ([WARM], [WARM])


@needs_sandbox
async def test_a_fork_holds_nothing_of_other_sandboxes_nor_of_their_lines(tmp_path: Path) -> None:
    async with lines(tmp_path, 2) as (one, other), served(one, tmp_path) as first, served(other, tmp_path) as second:
        waiting = [asyncio.create_task(bash(box, "tiny wait")) for box in (first, second)]
        await until(lambda: bool(one.heard(first)))
        await until(lambda: bool(other.heard(second)))
        held = [_open(child) for child in _children(one.pid)]
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
    assert len(held) == 2
    assert all(held)
    assert not held[0] & held[1]


@needs_sandbox
async def test_a_line_that_ends_with_something_unheard_ends_nothing_for_others(tmp_path: Path) -> None:
    async with lines(tmp_path, 2) as (one, other), served(one, tmp_path) as first, served(other, tmp_path) as second:
        pid, before = one.pid, len(_open(one.pid))
        await tell(first)
        await one.stop()
        await until(lambda: len(_open(pid)) < before)
        cold, warm = await tell(first), await tell(second)
        assert cold["imported_in"] == cold["pid"]
        assert warm["imported_in"] == pid
        assert (one.running, other.running) == (False, True)


@asynccontextmanager
async def borrower(asking: Any, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = ("-m", "tests.borrower", str(asking.fileno()), str(folder))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=REPO, stdin=pipe, stdout=pipe, pass_fds=(asking.fileno(),)
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _again(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    told: dict[str, Any] = json.loads(await process.stdout.readline())
    return told


@needs_sandbox
async def test_processes_share_a_server_that_outlives_each_of_them_and_is_replaced_when_it_dies(tmp_path: Path) -> None:
    tiny_layer(tmp_path)
    lending, asking = asking_pair()
    lender = Lender(lending, find_fork_server)
    with asking:
        async with borrower(asking, tmp_path) as one, borrower(asking, tmp_path) as other:
            first, second = await asyncio.gather(_again(one), _again(other))
            server = await find_fork_server(wanted(tmp_path))
            assert first["imported_in"] == second["imported_in"] == server.pid

            one.kill()
            await until(lambda: not Path(first["folder"]).exists())
            await until(lambda: len(_children(server.pid)) == 1)
            assert (await _again(other))["imported_in"] == server.pid

            os.kill(server.pid, signal.SIGKILL)
            await until(lambda: not server.running)
            third = await _again(other)
            assert third["imported_in"] == (await find_fork_server(wanted(tmp_path))).pid

            lender.close()
            await end_fork_servers()
            fourth = await _again(other)
            assert fourth["imported_in"] not in (server.pid, third["imported_in"], fourth["pid"])

            other.kill()
            await until(lambda: not _runs(fourth["imported_in"]))


async def test_whoever_asks_is_told_why_there_is_no_server(tmp_path: Path) -> None:
    async def none(wanted: Wanted) -> Line:
        raise SandboxError(f"{wanted.start.command} cannot be had")

    lending, asking = asking_pair()
    lender = Lender(lending, none)
    with asking, pytest.raises(SandboxError, match="tiny cannot be had"):
        await borrow(asking, wanted(tmp_path))
    lender.close()


async def test_whoever_waits_when_the_lender_goes_waits_no_longer_and_nor_does_the_next(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(wanted: Wanted) -> Line:
        asked.set()
        return await asyncio.get_running_loop().create_future()

    lending, asking = asking_pair()
    lender = Lender(lending, never)
    with asking:
        waiting = asyncio.create_task(borrow(asking, wanted(tmp_path)))
        await asked.wait()
        lender.close()
        with pytest.raises(EOFError):
            await waiting
        with pytest.raises(EOFError):
            await borrow(asking, wanted(tmp_path))
