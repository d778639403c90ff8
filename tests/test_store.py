import asyncio
import contextlib
import math
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harbor_env.errors import GatewayError, UsageError
from harbor_env.gateway.export import SessionExport
from harbor_env.gateway.store import FILE_NAME, SessionRecord, Store
from harbor_env.gateway.types import Finding, Message, Tool, ToolCall
from tests.turns import long_session, make_turn

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path)
    yield opened
    opened.close()


async def with_session(store: Store, session_id: str = "s") -> None:
    await store.create_session(SessionRecord(session_id, time.time(), {"purpose": "train"}), f"key-of-{session_id}")


async def _continue(store: Store, turn_id: str) -> None:
    await store.commit_turn("s", make_turn("next", turn_id))


def writer_process(directory: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.store_writer_process", str(directory), name, str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


async def test_a_turn_comes_back_equal(store: Store) -> None:
    await with_session(store)
    reply = Message(
        "assistant", "né \x00 数据", "because", (ToolCall("call_1", "bash", '{"a": 1', "functions.bash:0"),)
    )
    root = make_turn(
        "t1",
        delta=(Message("system", "be brief"), Message("tool", "no", tool_call_id="c", name="bash", is_error=True)),
        reply=reply,
        findings=(Finding("clamped", "max_tokens 9 -> 3"), Finding("odd")),
        facts={"dialect": "chat", "sampling": {"temperature": 0.1}, "versions": [["v0", 0, 2]]},
    )
    child = make_turn("t2", "t1", [], [], trainable=False, role="auxiliary")
    await store.commit_turn("s", root)
    await store.commit_turn("s", child)
    assert store.turns("s") == [root, child]


async def test_log_probabilities_keep_every_bit(store: Store) -> None:
    await with_session(store)
    values = [-0.1, -1e-300, -0.0, -math.inf, math.nan]
    await store.commit_turn("s", make_turn("t1", sampled=range(5), logprobs=values, trainable=False))
    (turn,) = store.turns("s")
    assert [value.hex() for value in turn.logprobs] == [value.hex() for value in values]


async def test_a_key_finds_its_session_and_is_not_in_the_file(store: Store, tmp_path: Path) -> None:
    await with_session(store)
    found = store.session_by_key("key-of-s")
    assert found is not None
    assert (found.id, found.status, found.options) == ("s", "open", {"purpose": "train"})
    assert store.session_by_key("key-of-t") is None
    assert store.session("t") is None
    store.close()
    assert b"key-of-s" not in (tmp_path / FILE_NAME).read_bytes()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


async def test_a_session_id_or_key_is_given_once(store: Store) -> None:
    await with_session(store)
    with pytest.raises(GatewayError, match="exists") as raised:
        await with_session(store)
    assert raised.value.kind == "conflict"


async def test_a_turn_without_its_parent_or_session_and_a_second_copy_are_refused(store: Store) -> None:
    await with_session(store)
    await store.commit_turn("s", make_turn("t1"))
    for session_id, turn in (("s", make_turn("t2", "t0")), ("gone", make_turn("t1")), ("s", make_turn("t1"))):
        with pytest.raises(GatewayError) as raised:
            await store.commit_turn(session_id, turn)
        assert raised.value.kind == "conflict"
    assert [turn.id for turn in store.turns("s")] == ["t1"]


async def test_a_failing_write_fails_alone_in_its_group(store: Store) -> None:
    await with_session(store)
    turns = [make_turn("bad", "nowhere") if index % 7 == 3 else make_turn(f"t{index}") for index in range(60)]
    results = await asyncio.gather(*(store.commit_turn("s", turn) for turn in turns), return_exceptions=True)
    stored = [turn.id for turn in turns if turn.id != "bad"]
    assert [turn.id for turn in store.turns("s")] == stored
    assert [isinstance(result, GatewayError) for result in results] == [turn.id == "bad" for turn in turns]


async def test_facts_that_are_not_json_are_refused_before_anything_is_written(store: Store) -> None:
    await with_session(store)
    with pytest.raises(TypeError):
        await store.commit_turn("s", make_turn("t1", facts={"odd": object()}))
    assert store.turns("s") == []


async def test_a_write_whose_caller_gave_up_stays_whole(store: Store) -> None:
    await with_session(store)
    waiting = [asyncio.create_task(store.commit_turn("s", make_turn(f"t{index}"))) for index in range(40)]
    await waiting[0]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await store.commit_turn("s", make_turn("last"))
    stored = {turn.id for turn in store.turns("s")}
    shown = {f"t{index}" for index, task in enumerate(waiting) if not task.cancelled()}
    assert {"t0", "last"} <= stored
    assert shown <= stored


async def test_turns_after_gives_what_was_committed_since(store: Store) -> None:
    await with_session(store)
    await with_session(store, "other")
    first = await store.commit_turn("s", make_turn("t1"))
    await store.commit_turn("other", make_turn("o1"))
    second = await store.commit_turn("s", make_turn("t2", "t1"))
    assert (first.previous, second.previous) == (0, first.seq)
    assert [(seq, turn.id) for seq, turn in store.turns_after("s", first.seq)] == [(second.seq, "t2")]
    assert store.turns_after("s", second.seq) == []
    assert store.turns_after("unknown", 0) == []


async def test_what_a_context_stands_for_is_kept_once(store: Store) -> None:
    await with_session(store)
    context = {"tools": [Tool("bash", "Run.", {"type": "object"})], "template_kwargs": {"thinking": True}}
    for index in range(3):
        await store.commit_turn("s", make_turn(f"t{index}"), context)
    assert store.contexts("s")["c0"]["template_kwargs"] == {"thinking": True}
    assert SessionExport("s", store.turns("s"), store.contexts("s")).tools(store.turns("s")[0]) == context["tools"]


async def test_findings_are_counted_over_session_and_turns(store: Store) -> None:
    await with_session(store)
    await store.commit_turn("s", make_turn("t1", findings=(Finding("clamped"), Finding("forked", "why"))))
    await store.add_findings("s", [Finding("clamped", "again")])
    assert store.finding_counts("s") == {"clamped": 2, "forked": 1}
    assert store.findings("s")[-1] == (None, Finding("clamped", "again"))
    assert [finding.code for finding in store.turns("s")[0].findings] == ["clamped", "forked"]
    with pytest.raises(GatewayError):
        await store.add_findings("gone", [Finding("clamped")])


async def test_a_deleted_session_is_gone_and_takes_no_more_turns(store: Store) -> None:
    await with_session(store)
    await with_session(store, "other")
    await store.commit_turn("s", make_turn("t1", findings=(Finding("clamped"),)), {"tools": []})
    assert await store.delete_session("s")
    assert not await store.delete_session("s")
    assert (store.turns("s"), store.findings("s"), store.contexts("s"), store.session("s")) == ([], [], {}, None)
    assert [record.id for record in store.sessions()] == ["other"]
    with pytest.raises(GatewayError):
        await store.commit_turn("s", make_turn("t2"))
    await with_session(store)
    assert store.turns("s") == []


async def test_a_file_with_tables_that_are_not_used_any_more_is_a_store(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("CREATE TABLE rollouts (id TEXT PRIMARY KEY)")
    store = Store.open(tmp_path)
    await with_session(store)
    assert store.session("s") is not None
    store.close()


async def test_idle_time_counts_from_the_last_sign_of_life(store: Store) -> None:
    await store.create_session(SessionRecord("s", time.time() - 100), "key")
    assert store.idle_seconds("s") > 99
    store.touch("s")
    assert store.idle_seconds("s") < 50
    await store.create_session(SessionRecord("t", time.time() - 100), "key2")
    await store.commit_turn("t", make_turn("t1"))
    assert store.idle_seconds("t") < 50


async def test_a_session_continues_after_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await with_session(store)
    await store.commit_turn("s", make_turn("t1"))
    store.close()
    store.close()
    again = Store.open(tmp_path)
    await again.commit_turn("s", make_turn("t2", "t1"))
    assert [turn.id for turn in again.turns("s")] == ["t1", "t2"]
    again.close()
    with pytest.raises(RuntimeError, match="closed"):
        await again.commit_turn("s", make_turn("t3", "t2"))


async def _store_session(directory: Path) -> None:
    store = Store.open(directory)
    await with_session(store)
    for turn in long_session():
        await store.commit_turn("s", turn, {"tools": []})
    store.close()


def test_a_session_of_200_turns_and_60k_tokens_takes_under_2_mb_on_disk_and_4_mb_in_memory(tmp_path: Path) -> None:
    asyncio.run(_store_session(tmp_path))
    assert (tmp_path / FILE_NAME).stat().st_size < 2_000_000
    program = (
        "import psutil, sys, pathlib; from harbor_env.gateway.store import Store\n"
        "store = Store.open(pathlib.Path(sys.argv[1])); before = psutil.Process().memory_info().rss\n"
        "turns = store.turns('s'); print(len(turns), psutil.Process().memory_info().rss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    turns, grown = map(int, done.stdout.split())
    assert turns == 200
    assert grown < 4_000_000


def test_law_6_kill_9_at_seeded_moments_loses_no_turn_that_was_reported_durable(tmp_path: Path) -> None:
    moments = random.Random(6)
    for run in range(6):
        directory = tmp_path / str(run)
        store = Store.open(directory)
        asyncio.run(with_session(store))
        store.close()
        process = writer_process(directory, "a", 10_000)
        assert process.stdout is not None
        shown = [process.stdout.readline().strip() for _ in range(moments.randrange(1, 60))]
        process.kill()
        shown += [line.strip() for line in process.stdout if line.endswith("\n")]
        process.wait()
        process.stdout.close()
        store = Store.open(directory)
        stored = store.turns("s")
        assert [turn.id for turn in stored][: len(shown)] == shown
        assert len(stored) <= len(shown) + 1
        for index, turn in enumerate(stored):
            assert list(turn.sampled) == list(turn.delta_ids) == list(range(index, index + 50))
        asyncio.run(_continue(store, stored[-1].id))
        store.close()


def test_two_processes_extend_one_session_and_both_know_all_of_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    asyncio.run(with_session(store))
    processes = [writer_process(tmp_path, name, 60) for name in ("a", "b", "c")]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    stored = [turn.id for turn in store.turns("s")]
    assert sorted(stored) == sorted(f"{name}{index}" for name in "abc" for index in range(60))
    for lines in outputs:
        known = lines[-1].split()[1:]
        assert known == stored[: len(known)]
    assert max(len(lines[-1].split()) - 1 for lines in outputs) == 180
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_directory_that_cannot_hold_a_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be used as the gateway's store"):
        Store.open(tmp_path / "file")
    (tmp_path / FILE_NAME).write_bytes(b"this is no database" * 100)
    with pytest.raises(UsageError, match="not a database"):
        Store.open(tmp_path)


def test_a_store_of_another_format_is_left_alone(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError, match="format 99"):
        Store.open(tmp_path)


def test_an_open_store_keeps_few_files_open(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    store = Store.open(tmp_path)
    assert psutil.Process().num_fds() - before <= 7
    store.close()
    assert psutil.Process().num_fds() <= before
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]
