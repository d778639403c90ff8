"""Limits: kept by cgroups where they are to be had, by weaker means where not, and said so."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from harbor_env.sandboxes.cgroups import Hierarchy, find_hierarchy, find_v2
from harbor_env.sandboxes.limits import Enforcement, Limits, enforce
from tests.sandbox_world import bash, needs_sandbox, sandbox, write_tree

needs_cgroups = pytest.mark.skipif(isinstance(find_hierarchy(), str), reason=f"no cgroups: {find_hierarchy()}")

HOG = "python3 -c \"x = bytearray(600 << 20); print('kept', len(x))\""
BOMB = "bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 0.5"


@needs_sandbox
@needs_cgroups
async def test_a_memory_hog_is_killed_and_the_sandbox_lives() -> None:
    async with sandbox(limits=enforce(Limits(memory_bytes=200 << 20))) as box:
        hog = await bash(box, HOG)
        assert (hog.stdout, hog.code) == ("", 137)
        assert (await bash(box, "echo alive")).stdout == "alive\n"


@needs_sandbox
async def test_a_fork_bomb_is_contained_and_the_sandbox_still_stops() -> None:
    limits = enforce(Limits(processes=60))
    async with sandbox(limits=limits) as box:
        if isinstance(find_hierarchy(), str) and not limits.rlimits:
            pytest.skip("root without cgroups has no limit on processes")
        await bash(box, BOMB)
        count = await bash(box, "ls -d /proc/[0-9]* | wc -l", confined=False)
        assert int(count.stdout) <= 70


@needs_sandbox
@needs_cgroups
async def test_cpu_time_is_rationed() -> None:
    async with sandbox(limits=enforce(Limits(cpus=0.2))) as box:
        done = await bash(
            box, "i=0; end=$((${EPOCHREALTIME/./}+600000)); while ((${EPOCHREALTIME/./}<end)); do :; done; times"
        )
    minutes, seconds = done.stdout.split()[0].removesuffix("s").split("m")
    assert float(minutes) * 60 + float(seconds) < 0.45


@needs_sandbox
async def test_without_cgroups_each_process_is_limited_and_it_is_said() -> None:
    limits = enforce(Limits(memory_bytes=300 << 20, cpus=1, processes=500), "not on this machine")
    assert "limits not enforced by cgroups: not on this machine" in limits.notes[0]
    assert "memory limited for each process" in limits.notes[0]
    assert len(limits.cpus) == 1
    async with sandbox(limits=limits) as box:
        assert "MemoryError" in (await bash(box, HOG)).stderr
        assert (await bash(box, "nproc")).stdout == "1\n"
        assert box.notes[: len(limits.notes)] == limits.notes


def test_no_limits_need_no_cgroups() -> None:
    made = enforce(Limits())
    assert made == Enforcement(name=made.name)


def _unified(folder: Path, enabled: str) -> Path:
    write_tree(folder, {"cgroup.subtree_control": enabled, "cgroup.procs": "", "own/cgroup.subtree_control": ""})
    write_tree(folder, {"own/cgroup.procs": "1"})
    return folder / "own"


def test_on_cgroup_v2_the_nearest_folder_with_all_controllers_is_used(tmp_path: Path) -> None:
    own = _unified(tmp_path, "cpuset cpu io memory pids")
    (own / "cgroup.subtree_control").unlink()
    assert find_v2(own, tmp_path) == Hierarchy(2, {"": tmp_path})


def test_on_cgroup_v2_without_controllers_the_reason_says_what_to_start_under(tmp_path: Path) -> None:
    own = _unified(tmp_path, "cpu")
    for folder in (own, tmp_path):
        (folder / "cgroup.subtree_control").unlink()
    assert "systemd-run --user --scope" in str(find_v2(own, tmp_path))


UNIFIED = Path("/sys/fs/cgroup/unified")


@pytest.mark.root
@pytest.mark.skipif(not os.access(UNIFIED, os.W_OK), reason="no cgroup v2 beside v1 that root may write")
def test_on_a_real_cgroup_v2_processes_make_room_for_children_with_limits() -> None:
    controllers = tuple((UNIFIED / "cgroup.controllers").read_text().split())
    control = UNIFIED / "cgroup.subtree_control"
    added = set(controllers) - set(control.read_text().split())
    own = UNIFIED / f"test-{os.getpid()}"
    own.mkdir()
    control.write_text("".join(f"+{name} " for name in controllers))
    sleeper = subprocess.Popen(["sleep", "300"])
    try:
        (own / "cgroup.procs").write_text(str(sleeper.pid))
        assert find_v2(own, own, controllers) == Hierarchy(2, {"": own})
        assert (own / "openenv-harbor-owner/cgroup.procs").read_text().split() == [str(sleeper.pid)]
        assert (own / "cgroup.subtree_control").read_text().split() == list(controllers)
    finally:
        sleeper.kill()
        sleeper.wait()
        (own / "openenv-harbor-owner").rmdir()
        own.rmdir()
        control.write_text("".join(f"-{name} " for name in added))


def test_on_cgroup_v2_limits_are_written_in_its_own_terms(tmp_path: Path) -> None:
    made = enforce(Limits(memory_bytes=100, cpus=1.5, processes=7), Hierarchy(2, {"": tmp_path}))
    (folder,) = map(Path, made.cgroups)
    values = {path.name: path.read_text() for path in folder.iterdir()}
    assert values == {"memory.max": "100", "cpu.max": "150000 100000", "pids.max": "7"}


def test_on_cgroup_v1_limits_are_written_to_each_controller(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("memory", "cpu", "pids")}
    for folder in folders.values():
        folder.mkdir()
    made = enforce(Limits(memory_bytes=100, cpus=0.5), Hierarchy(1, folders))
    values = {path.name: path.read_text() for folder in made.cgroups for path in Path(folder).iterdir()}
    assert values == {"memory.limit_in_bytes": "100", "cpu.cfs_quota_us": "50000"}


def test_a_folder_that_cannot_be_made_is_a_note_and_no_failure(tmp_path: Path) -> None:
    made = enforce(Limits(processes=5), Hierarchy(2, {"": tmp_path / "missing"}))
    assert made.cgroups == ()
    assert "limits not enforced by cgroups" in made.notes[0]


@needs_sandbox
@needs_cgroups
async def test_sandboxes_side_by_side_have_limits_of_their_own() -> None:
    async with sandbox(limits=enforce(Limits(memory_bytes=100 << 20))) as small, sandbox() as free:
        hog, kept = await asyncio.gather(bash(small, HOG), bash(free, HOG))
    assert hog.code == 137
    assert kept.stdout == f"kept {600 << 20}\n"
