"""Warm starts: forks of a process that has imported the harness, and cold starts wherever that cannot be."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.fork_line import DOOR, Said
from harbor_env.sandboxes.fork_server import ForkServer
from harbor_env.sandboxes.lending import Wanted
from harbor_env.sandboxes.limits import Limits, enforce
from harbor_env.sandboxes.pace import place_of
from harbor_env.sandboxes.places import Places
from harbor_env.sandboxes.sandbox import Root
from harbor_env.sandboxes.warm import AT_ONCE, Warming, end_fork_servers, find_fork_server
from tests.sandbox_world import bash, environment, needs_sandbox, sandbox, until, where
from tests.warm_world import START, base, fork_server, served, tell, tiny_layer

pytestmark = needs_sandbox
WARM = Said()


async def test_modules_are_imported_once_for_the_commands_of_many_sandboxes(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server, served(server, tmp_path) as one, served(server, tmp_path) as other:
        told = [await tell(box) for box in (one, other, one)]
        assert {each["imported_in"] for each in told} == {server.pid}
        assert (server.heard(one), server.heard(other)) == ([WARM, WARM], [WARM])


async def test_a_fork_is_what_a_cold_start_would_have_been(tmp_path: Path) -> None:
    command = "umask 027; cd /tmp; KEY=1 tiny tell 'two words'"
    async with fork_server(tmp_path) as server, served(server, tmp_path, enforce(Limits(None, None, 500))) as box:
        warm = await tell(box, command)
        around = await bash(box, "readlink /proc/self/ns/{mnt,pid,net,uts,ipc,cgroup,user}")
    async with sandbox(Root(base(), (tmp_path / "tiny-layer",)), limits=enforce(Limits(None, None, 500))) as box:
        cold = await tell(box, command)
    assert warm["imported_in"] == server.pid
    assert list(warm["namespaces"].values()) == around.stdout.split()
    for each in (warm, cold):
        for name in ("imported_in", "pid", "chance", "namespaces"):
            del each[name]
    assert warm == cold


async def test_nothing_of_a_rollout_is_in_another(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server, served(server, tmp_path) as one, served(server, tmp_path) as other:
        first, second = await tell(one, "KEY=secret tiny"), await tell(other)
    assert (first["seen"], second["seen"]) == (["secret"], [None])
    assert "KEY" not in second["env"]
    assert second["files"] == [0, 1, 2]
    assert first["namespaces"]["mnt"] != second["namespaces"]["mnt"]
    assert first["chance"] != second["chance"]


@pytest.mark.parametrize(
    ("command", "stdout", "code"),
    [
        ("tiny exit 7", "", 7),
        ("tiny kill", "", 137),
        ("echo input | tiny echo | cat", "INPUT\n", 0),
        ("timeout 1 tiny wait; exit $?", "waiting\n", 124),
        ("{ tiny fail; } 2>&1 | tail -1; exit ${PIPESTATUS[0]}", "RuntimeError: the harness failed\n", 1),
    ],
)
async def test_streams_statuses_and_signals_are_passed_on(command: str, stdout: str, code: int, tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server, served(server, tmp_path) as box:
        done = await bash(box, command)
        assert (done.stdout, done.code) == (stdout, code)
        assert server.heard(box) == [WARM]


async def test_a_fork_ends_with_the_command_that_asked_for_it(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server, served(server, tmp_path) as box:
        with suppress(TimeoutError):
            await bash(box, "tiny wait", timeout=2)
        assert server.heard(box) == [WARM]
        await until(lambda: not _children(server))


async def test_a_fork_ends_with_its_sandbox(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        async with served(server, tmp_path) as box:
            waiting = asyncio.create_task(bash(box, "tiny wait"))
            await until(lambda: bool(server.heard(box)))
        with pytest.raises(SandboxError):
            await waiting
        await until(lambda: not _children(server))


def _children(server: ForkServer) -> str:
    return Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()


async def test_a_command_that_runs_needs_the_server_no_more(tmp_path: Path) -> None:
    server = await _start(tmp_path)
    async with served(server, tmp_path) as box:
        running = asyncio.create_task(bash(box, "tiny wait >/tmp/said & echo $! >/tmp/pid; wait $!"))
        await bash(box, "until grep -q waiting /tmp/said; do :; done")
        await server.stop()
        await bash(box, "kill $(cat /tmp/pid)")
        done = await running
    assert (done.code, done.stderr) == (1, "was asked to end\n")


async def test_a_server_that_was_stopped_can_be_ended(tmp_path: Path) -> None:
    server = await _start(tmp_path)
    os.kill(server.pid, signal.SIGSTOP)
    async with asyncio.timeout(20):
        await server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


async def _start(folder: Path) -> ForkServer:
    return await ForkServer.start(where(), base(), (tiny_layer(folder),), START)


async def test_a_client_that_says_nothing_keeps_nobody_waiting(tmp_path: Path) -> None:
    silent = f"import socket; s = socket.socket(1, 5); s.connect('{DOOR}'); input()"
    async with fork_server(tmp_path) as server, served(server, tmp_path) as box:
        done = await bash(box, f'mkfifo /tmp/f; python3 -c "{silent}" <>/tmp/f & tiny exit 3')
        assert (done.code, server.heard(box)) == (3, [WARM])


async def test_what_modules_looked_at_must_be_as_it_was(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server, served(server, tmp_path) as box:
        for setting in ("TINY_MODE=other", "PYTHONPATH=/tmp", "LC_ALL=de_DE.ISO-8859-1"):
            told = await tell(box, f"{setting} tiny")
            assert told["imported_in"] == told["pid"]
        reasons = [said.cold for said in server.heard(box)]
    assert ["TINY_MODE" in reasons[0], "PYTHONPATH" in reasons[1], "locale" in reasons[2]] == [True] * 3


async def test_commands_start_cold_where_the_server_has_ended(tmp_path: Path) -> None:
    server = await _start(tmp_path)
    async with served(server, tmp_path) as box:
        await server.stop()
        told = await tell(box)
        assert told["imported_in"] == told["pid"]
    with pytest.raises(SandboxError, match="the fork server does not answer"):
        async with served(server, tmp_path):
            pass


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("import threading as t; t.Thread(target=t.Event().wait, daemon=True).start()", "thread"),
        ("import os; FILE = os.open('/dev/null', 0)", "leave files open"),
        ("import os; os._exit(3)", "ended before it was ready"),
    ],
)
async def test_modules_that_cannot_be_forked_are_told_apart(text: str, reason: str, tmp_path: Path) -> None:
    layer = tiny_layer(tmp_path)
    (layer / "opt/tiny/odd.py").write_text(text)
    with pytest.raises(SandboxError, match=reason):
        await ForkServer.start(where(), base(), (layer,), replace(START, modules=("odd",)))


async def test_sandboxes_share_a_server_until_it_ends(tmp_path: Path) -> None:
    wanted = Wanted(where(), base(), (tiny_layer(tmp_path),), START)
    first, second = await asyncio.gather(*(find_fork_server(wanted) for _ in range(2)))
    assert first is second
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: not first.running)
    assert (await find_fork_server(wanted)).pid != first.pid
    await end_fork_servers()


@pytest.mark.parametrize(("again_after", "tried_again"), [(600.0, False), (0.0, True)])
async def test_a_server_that_could_not_be_started_is_tried_again_after_a_while(
    again_after: float, tried_again: bool, tmp_path: Path
) -> None:
    layer = tiny_layer(tmp_path)
    wanted = Wanted(where(), base(), (layer,), replace(START, modules=("late",)))
    with pytest.raises(SandboxError, match="No module named 'late'"):
        await find_fork_server(wanted, again_after=again_after)
    await asyncio.sleep(0)
    (layer / "opt/tiny/late.py").touch()
    with nullcontext() if tried_again else pytest.raises(SandboxError, match="No module named 'late'"):
        await find_fork_server(wanted)
    await end_fork_servers()


async def test_a_server_s_start_waits_for_those_that_are_starting(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    wanted = Wanted(Places(cache, where().scratch), base(), (tiny_layer(tmp_path),), START)
    async with AsyncExitStack() as others:
        for _ in range(AT_ONCE.slots):
            await (await others.enter_async_context(place_of("fork-server", AT_ONCE, cache))).come()
        starting = asyncio.create_task(find_fork_server(wanted))
        assert not (await asyncio.wait({starting}, timeout=0.5))[0]
    assert (await starting).running
    await end_fork_servers()


async def test_a_disk_that_holds_no_slots_is_a_reason_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "pace").touch()
    wanted = Wanted(Places(tmp_path, where().scratch), base(), (tiny_layer(tmp_path),), START)
    with pytest.raises(SandboxError, match=r"there is no fork server: .*pace"):
        await find_fork_server(wanted)
    await end_fork_servers()


async def test_what_is_in_the_way_of_a_warm_start_is_told_and_harms_nothing(tmp_path: Path) -> None:
    facts = asdict(replace(START, modules=("there_is_no_such",)))
    async with environment(tmp_path, "FROM x\n", warm=facts, layers=[]) as env:
        assert (await env.exec("echo fine")).stdout == "fine\n"
    assert "tiny cannot be started warm" in env.cold
    await end_fork_servers()


async def test_a_harness_that_never_asked_is_told_of(tmp_path: Path) -> None:
    layer = tiny_layer(tmp_path)
    warming = Warming(START)
    await warming.prepare(where(), base(), (layer,))
    async with environment(tmp_path / "task") as env:
        await warming.attach(env.sandbox)
        warming.finish(env.sandbox)
    assert warming.cold == "tiny was not started warm: nothing asked the fork server for it"
    await end_fork_servers()
