"""After a sandbox, nothing of it is left: processes, mounts, cgroups, files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import host_base
from harbor_env.sandboxes.leftovers import claim, sweep
from harbor_env.sandboxes.limits import Limits, enforce
from harbor_env.sandboxes.sandbox import Root, Sandbox
from tests.sandbox_world import CACHE, REPO, bash, needs_sandbox, root, sandbox, until, where

OWNER = """
import asyncio, sys
from tests.sandbox_world import bash, root, where
from harbor_env.sandboxes.limits import Limits, enforce
from harbor_env.sandboxes.sandbox import Sandbox

async def main():
    limits = enforce(Limits(processes=100, memory_bytes=1 << 30))
    box = await Sandbox.start(where(), root(), limits=limits)
    done = await bash(box, "setsid sleep 300 & setsid -f sleep 300; echo $$")
    print(box.folder, *limits.cgroups, flush=True)
    await asyncio.sleep(300)

asyncio.run(main())
"""

DEEP = "mkdir /a; cd /a; for i in $(seq 200); do mkdir $(printf 'd%.0s' {1..200}) && cd d*; done"


def _processes_naming(text: str) -> list[int]:
    """Processes whose mounts or open files name `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                seen = (entry / "mountinfo").read_text() + " ".join(
                    map(str, map(Path.readlink, (entry / "fd").iterdir()))
                )
            except OSError:
                continue
            if text in seen:
                found.append(int(entry.name))
    return found


async def _gone(folder: Path, cgroups: tuple[str, ...] = ()) -> None:
    """Wait for the keeper's clearing up, which nothing but its effects announces."""
    await until(lambda: not (folder.exists() or _processes_naming(folder.name) or _existing(cgroups)))


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if Path(path).exists()]


@needs_sandbox
async def test_stop_leaves_nothing() -> None:
    limits = enforce(Limits(processes=100, memory_bytes=1 << 30, cpus=1))
    async with sandbox(limits=limits) as box:
        await bash(box, f"setsid -f sleep 300; {DEEP}")

        assert box.folder.is_dir()
        assert _processes_naming(box.folder.name)
    assert not _existing(limits.cgroups)
    await _gone(box.folder)
    await box.stop()


@needs_sandbox
@pytest.mark.parametrize("victim", ["owner", "owner and keeper"])
async def test_an_owner_killed_outright_leaves_nothing(victim: str) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OWNER,
        stdout=asyncio.subprocess.PIPE,
        cwd=REPO,
        env={**os.environ, "SANDBOX_TEST_CACHE": CACHE},
    )
    assert owner.stdout is not None
    folder, *cgroups = (await owner.stdout.readline()).decode().split()
    assert _processes_naming(Path(folder).name)
    if victim == "owner and keeper":
        for pid in _processes_naming(f"{folder}/lock"):
            os.kill(pid, signal.SIGKILL)
    owner.kill()
    await owner.wait()
    if victim == "owner and keeper":
        await until(lambda: not _processes_naming(Path(folder).name))
        await until(lambda: Path(folder) in sweep(where().scratch))
    await _gone(Path(folder), tuple(cgroups))


@needs_sandbox
async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    before = set(where().scratch.iterdir())
    ended = []
    for steps in (1, 3, 6, 10):
        task = asyncio.create_task(Sandbox.start(where(), root()))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        ended += await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError)
    for box in ended:
        if isinstance(box, Sandbox):  # it was up before the cancellation reached it
            await box.stop()
    for folder in set(where().scratch.iterdir()) - before:
        await _gone(folder)


@needs_sandbox
async def test_a_root_that_cannot_be_built_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    base = host_base(where())
    broken = type(base)(base.identity, base.skeleton, {**base.points, "/usr": str(tmp_path / "missing")}, base.binds)
    before = set(where().scratch.iterdir())
    with pytest.raises(SandboxError, match=r"overlay on .*/usr.*doctor"):
        await Sandbox.start(where(), Root(broken))
    for folder in set(where().scratch.iterdir()) - before:
        await _gone(folder)


@needs_sandbox
async def test_processes_inside_end_when_process_1_is_killed() -> None:
    async with sandbox() as box:
        running = asyncio.create_task(bash(box, "sleep 300"))
        os.kill(await _process_1(box), signal.SIGKILL)
        with pytest.raises(SandboxError, match="the sandbox ended"):
            await running
        await _gone(box.folder)


async def _process_1(box: Sandbox) -> int:
    """The host's number of the sandbox's process 1: the parent of a command, told by how long it sleeps."""
    seconds = f"300.{os.getpid()}"
    naming = asyncio.create_task(bash(box, f"exec sleep {seconds}"))
    found: list[int] = []

    def see() -> bool:
        found.extend(pid for pid in _numbers() if _read(pid, "cmdline") == f"sleep\0{seconds}\0")
        return bool(found)

    await until(see)
    status = dict(line.split(":", 1) for line in _read(found[0], "status").splitlines())
    naming.cancel()
    return int(status["PPid"])


def _numbers() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def test_a_sweep_removes_what_dead_owners_left_and_nothing_else(tmp_path: Path) -> None:
    living, dead, unborn = tmp_path / "living", tmp_path / "dead", tmp_path / "unborn"
    held = claim(living)
    os.close(claim(dead))
    cgroup = tmp_path / "a-cgroup"
    cgroup.mkdir()
    (dead / "lock").write_text(json.dumps({"cgroups": [str(cgroup)]}))
    (dead / "work").mkdir(mode=0o000)
    unborn.mkdir()
    cgroup_of_nobody = tmp_path / "file"
    cgroup_of_nobody.write_text("")
    assert sweep(tmp_path) == [dead]
    assert (living.exists(), dead.exists(), unborn.exists(), cgroup.exists()) == (True, False, True, False)
    os.utime(unborn, (0, 0))
    os.close(held)
    assert set(sweep(tmp_path)) == {living, unborn}


def test_a_sweep_of_no_folder_does_nothing(tmp_path: Path) -> None:
    assert sweep(tmp_path / "missing") == []


async def test_a_kept_folder_is_safe_from_other_sandboxes_until_it_is_released() -> None:
    box = await Sandbox.start(where(), root(), keep=True)
    try:
        await box.stop()
        assert box.folder not in sweep(where().scratch)
        assert (box.folder / "upper0").is_dir()
    finally:
        box.release()
    assert box.folder in sweep(where().scratch)
    assert not box.folder.exists()
