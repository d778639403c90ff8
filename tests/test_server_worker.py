"""A worker process and the server talk in whole messages, and nothing a rollout leaves behind opens its session."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harbor_env.errors import SandboxError, UsageError
from harbor_env.models import HarborResult
from harbor_env.outcome import RolloutResult
from harbor_env.rollout import GatewayAddress, RolloutSpec
from harbor_env.server import remains
from harbor_env.server.answer import answer
from harbor_env.server.frames import Frames
from harbor_env.server.pool import ADAPTERS, Pool, Worker, adapter_module
from harbor_env.server.worker import Cancel, Ended, Run, blame, serve
from tests.waiting import until

KEY = "sk-harbor-0123456789abcdef"


@pytest.fixture
def spec(tmp_path: Path) -> RolloutSpec:
    out = tmp_path / remains.ROLLOUTS
    (out / "logs" / "r-1" / "agent").mkdir(parents=True)
    (out / "logs" / "r-1" / "agent" / "tiny.txt").write_text(f"key {KEY}")
    (out / "traces").mkdir()
    (out / "traces" / "r-1.trace.json").write_text("{}")
    return RolloutSpec("r-1", tmp_path / "task", "tiny", GatewayAddress("http://127.0.0.1:1"), out)


def test_the_sentence_of_a_failure_holds_no_secret() -> None:
    assert blame(OSError(f"no /logs/{KEY}"), [KEY]) == ("sandbox", f"OSError: no /logs/{'*' * len(KEY)}")
    assert blame(UsageError(f"{KEY} is refused"), [KEY, ""]) == ("task", f"{'*' * len(KEY)} is refused")


def test_a_harness_that_could_not_be_baked_may_be_tried_again() -> None:
    assert blame(SandboxError("no network"), []) == ("sandbox", "no network")


async def test_a_message_whose_reading_was_cancelled_midway_is_read_whole_afterwards() -> None:
    ours, theirs = socket.socketpair()
    reader, body = await Frames.over(ours), pickle.dumps(Cancel())
    with theirs:
        theirs.sendall(len(body).to_bytes(8))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read()
        theirs.sendall(body)
        assert await reader.read() == Cancel()
    await reader.close()


def test_a_rollout_s_files_are_removed_or_kept_beside_the_others(spec: RolloutSpec) -> None:
    remains.settle(spec, keep=True)
    kept = spec.out.parent / remains.KEPT / "r-1"
    assert sorted(path.name for path in kept.iterdir()) == ["logs", "trace.json"]
    assert [path for path in spec.out.rglob("*") if path.is_file()] == []


async def test_a_rollout_that_is_cancelled_before_a_worker_has_it_leaves_no_file(spec: RolloutSpec) -> None:
    pool = Pool(spec.out.parent / "log", limit=1)
    await pool.start()
    running = asyncio.create_task(pool.run(Run(spec), lambda at: None, within=60.0))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await pool.close()
    assert [path for path in spec.out.rglob("*") if path.is_file()] == []


async def test_a_worker_too_many_waits_a_while_and_the_last_to_come_back_is_the_next_to_go(spec: RolloutSpec) -> None:
    def workers() -> set[psutil.Process]:
        return {worker for nursery in before.symmetric_difference(children()) for worker in nursery.children()}

    async def run(name: str) -> None:
        order = Run(replace(spec, name=name), bake=False)
        assert (await pool.run(order, lambda at: None, within=60.0))["id"] == name

    children = psutil.Process().children
    before = set(children())
    pool = Pool(spec.out.parent / "log", limit=2, idle=1, linger=600.0)
    await pool.start()
    await asyncio.gather(run("r-1"), run("r-2"))
    await run("r-3")  # meanwhile the other falls asleep
    turns = {worker: worker.num_ctx_switches().voluntary for worker in workers()}
    for name in ("r-4", "r-5"):
        await run(name)
    [used] = [worker for worker, before_that in turns.items() if worker.num_ctx_switches().voluntary > before_that]
    assert len(workers()) == len(turns) == 2
    pool.linger = 0.0
    await run("r-6")
    await until(lambda: workers() == {used})
    await pool.close()


@pytest.mark.parametrize(
    ("harness", "module"),
    [
        ("mini-swe-agent", "harbor_env.harnesses.litellm_adapters"),
        ("mini-swe-agent@messages", "harbor_env.harnesses.litellm_adapters"),
        ("pi", ADAPTERS),
        ("terminus-2", ADAPTERS),
        ("tests.tiny_harness:TINY", ADAPTERS),
        ("there-is-no-such-harness", ADAPTERS),
    ],
)
def test_the_nursery_imports_a_known_harness_s_adapter_and_nobody_else_s(harness: str, module: str) -> None:
    assert adapter_module(harness) == module


def test_what_a_server_that_died_left_is_removed_by_the_next_and_by_no_other(spec: RolloutSpec) -> None:
    first = remains.claim(spec.out)
    assert first is not None
    assert not (spec.out / "logs").exists()
    (spec.out / "logs").mkdir()
    assert remains.claim(spec.out) is None
    assert (spec.out / "logs").exists()
    os.close(first)


def test_the_logs_of_a_process_that_died_are_read_without_secrets_and_removed(spec: RolloutSpec) -> None:
    remains.last_words(spec, (KEY,))
    assert (spec.out / "logs" / "r-1" / "agent" / "tiny.txt").read_text() == f"key {'*' * len(KEY)}"
    remains.clear(spec)
    assert [path for path in spec.out.rglob("*") if path.is_file()] == []


def test_all_that_a_rollout_left_to_be_read_is_in_its_result(tmp_path: Path) -> None:
    agent, verifier = (tmp_path / "logs" / "r-1" / folder for folder in ("agent", "verifier"))
    for folder, name, text in (
        (agent, "trajectory.json", '{"steps": [1]}'),
        (agent, "tiny.txt", "all done"),
        (verifier, "test-stdout.txt", "1 passed"),
        (tmp_path / "traces", "r-1.trace.json", '{"turns": []}'),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    ran = RolloutResult("r-1", "t", "h", "local", ok=True, reward=1.0, trace="traces/r-1.trace.json")
    ran = replace(ran, findings={"forked": 1}, seconds={"agent": 2.5}, counts={"turns": 1}, flags=("budget",))
    told = HarborResult.model_validate(answer(ran, tmp_path))
    assert told.log_tails == {"agent": "all done", "verifier": "1 passed"}
    assert (told.harness_trace(), told.compact_trace()) == ({"steps": [1]}, {"turns": []})
    assert (told.findings, told.seconds) == ({"forked": 1}, {"agent": 2.5})
    assert (told.counts, told.flags) == ({"turns": 1}, ["budget"])


async def test_a_result_is_told_although_its_rollout_s_files_cannot_be_put_away(spec: RolloutSpec) -> None:
    (spec.out.parent / remains.KEPT).write_text("a file where the folder of kept rollouts should be")
    ours, theirs = socket.socketpair()
    serving, frames = asyncio.create_task(serve(theirs)), await Frames.over(ours)
    frames.write(Run(spec, bake=False, keep=True))
    async with asyncio.timeout(30):
        while not isinstance(message := await frames.read(), Ended):
            pass
    assert message.result["id"] == "r-1"
    await frames.close()
    await serving


async def test_a_worker_is_killed_but_never_a_process_that_has_the_id_of_one_that_ended() -> None:
    for ended in (True, False):
        ours, theirs = socket.socketpair()
        worker = Worker(await Frames.over(ours))
        stranger = await asyncio.create_subprocess_exec("sleep", "60")
        with theirs:
            worker.pid = stranger.pid
            if ended:
                theirs.close()
                with pytest.raises(EOFError):
                    await worker.frames.read()
            await worker.kill()
            if ended:
                stranger.terminate()
            assert await stranger.wait() == (-signal.SIGTERM if ended else -signal.SIGKILL)
