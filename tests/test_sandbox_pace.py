"""Sandboxes are begun no faster than their backend allows, whichever process of this machine asks, killed or not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harbor_env.sandboxes.pace import StartRate, place_of
from tests.sandbox_world import REPO


def process(folder: Path, per_second: float, running: int, count: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.pace_process", str(folder), str(per_second), str(running), str(count)]
    return subprocess.Popen(words, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_several_processes_share_one_rate(tmp_path: Path) -> None:
    processes = [process(tmp_path, 20, 0, 5) for _ in range(3)]
    times = sorted(float(line) for one in processes for line in one.communicate()[0].split())
    assert len(times) == 15
    assert times[-1] - times[0] >= 14 / 20 * 0.95
    assert all(later - earlier > 0.01 for earlier, later in zip(times[::3], times[3::3], strict=False))


def test_a_slot_of_a_process_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    first = process(tmp_path, 0, 1, 1)
    with first:
        assert first.stdout
        assert first.stdout.readline()
        second = process(tmp_path, 0, 1, 1)
        with second:
            assert second.stdout
            killed = time.time()
            first.kill()
            assert float(second.stdout.readline()) >= killed
            second.communicate("\n", timeout=20)


async def test_a_slot_is_held_until_its_turn_ends_and_no_longer(tmp_path: Path) -> None:
    pace = StartRate(per_second=0, running=1)
    async with place_of("b", pace, tmp_path) as first:
        await first.come()
        first.started()
        async with place_of("b", pace, tmp_path) as second:
            waiting = asyncio.create_task(second.come())
            done, _ = await asyncio.wait({waiting}, timeout=0.3)
            assert not done
            first.release()
            await waiting
            assert second.waited > 0.2


async def test_where_starts_are_counted_the_slot_is_free_when_the_harness_begins(tmp_path: Path) -> None:
    pace = StartRate(per_second=0, starting=1)
    async with place_of("b", pace, tmp_path) as first, place_of("b", pace, tmp_path) as second:
        await first.come()
        first.started()
        await asyncio.wait_for(second.come(), 5)


async def test_backends_do_not_wait_for_each_other(tmp_path: Path) -> None:
    pace = StartRate(per_second=0, running=1)
    async with place_of("a:B", pace, tmp_path) as first, place_of("../b", pace, tmp_path) as second:
        await first.come()
        await asyncio.wait_for(second.come(), 5)
    assert sorted(path.name for path in (tmp_path / "pace").iterdir()) == [".._b", "a_B"]


async def test_a_clock_that_was_put_back_or_a_file_of_nonsense_stops_nobody(tmp_path: Path) -> None:
    bucket = tmp_path / "pace" / "b" / "bucket"
    bucket.parent.mkdir(parents=True)
    later = f"{time.time() + 10**6:020.6f}"
    for content in (f"{later} {later}", later, "nonsense", ""):
        bucket.write_text(content)
        async with place_of("b", StartRate(per_second=1000), tmp_path) as place:
            await asyncio.wait_for(place.come(), 5)


async def test_a_queue_of_any_length_is_waited_in(tmp_path: Path) -> None:
    now = time.time()
    bucket = tmp_path / "pace" / "b" / "bucket"
    bucket.parent.mkdir(parents=True)
    bucket.write_text(f"{now + 5000:020.6f} {now:020.6f}")
    async with place_of("b", StartRate(per_second=1), tmp_path) as place:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(place.come(), 0.1)
    assert 5001 <= float(bucket.read_text().split()[0]) - now < 5002


def test_those_that_were_refused_do_not_come_back_together() -> None:
    waits = [StartRate(first_wait=2).wait_before(2) for _ in range(200)]
    assert min(waits) >= 4
    assert max(waits) <= 12
    assert len(set(waits)) == 200
