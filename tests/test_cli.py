"""The command line: fast to start, one sentence for what a user got wrong, exit 2, no traceback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harbor_env.atif import AtifCheck
from harbor_env.cli.again import again
from harbor_env.cli.summary import result_line, summary
from harbor_env.gateway.store import SessionRecord, Store
from harbor_env.outcome import Reason, RolloutResult
from tests.tiny_harness import write_task
from tests.tokenizers import qwen3_dir

REPOSITORY = Path(__file__).parents[1]
OK = RolloutResult(
    "0000-a-h-0",
    "a",
    "h",
    "local",
    ok=True,
    reward=1.0,
    seconds={"total": 12.3},
    counts={"turns": 9, "roots": 1, "rows": 1, "sampled_tokens": 1043},
    atif=AtifCheck("match"),
    level="tokens",
)
FAILED = RolloutResult("0001-b-h-0", "b", "h", "local", ok=False, reward=None, reason=Reason("engine", "It is down."))


def command(*words: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harbor_env.cli", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_help_starts_without_harbor_openenv_or_an_engine() -> None:
    code = "import sys, harbor_env.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    heavy = {"harbor", "openenv", "transformers", "torch", "aiohttp", "starlette", "pydantic", "xllamacpp", "litellm"}
    assert heavy.isdisjoint(done.stdout.split())


def test_help_teaches_with_commands() -> None:
    done = command("rollout", "--help")
    assert done.returncode == 0
    assert "$ openenv-harbor rollout -n 2" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rollout", "--task-index", "9999"], "numbered 0 to"),
        (["rollout", "--task", "no-such-task"], "no task named 'no-such-task'"),
        (["rollout", "--dataset", "no-such-dataset"], "is no dataset"),
        (["rollout", "--split", "no-such-split"], "has no split"),
        (["rollout", "--harness", "no-such-harness", "--gateway", "http://127.0.0.1:9"], "no harness"),
        (["rollout", "--harness", ","], "at least one harness"),
        (["rollout", "--sandbox", "no-such-sandbox"], "no sandbox 'no-such-sandbox'"),
        (["rollout", "--purpose", "fun"], "train or eval"),
        (["rollout", "--harness", "tests.tiny_harness:TINY", "--engine", "nonsense"], "no engine 'nonsense'"),
        (["export", "--data", "no-such-folder"], "not the data folder of a gateway"),
        (["export"], "Give --data"),
        (["export", "--url", "http://127.0.0.1:9"], "give --session"),
        (["bake", "--harness", "no-such-harness"], "no harness"),
        (["gateway", "--host", "0.0.0.0"], "--admin-key"),
        (["rollout", "--temperature", "inf"], "--temperature"),
        (["rollout", "--expose", "no-such-way"], "no way 'no-such-way'"),
        (["rollout", "--rotate", "round"], "task, attempt, every"),
        (["rollout", "--llm-url", "127.0.0.1:8000"], "has no scheme: give http://127.0.0.1:8000"),
        (["rollout", "--llm-url", "http://127.0.0.1:port"], "is no server's URL"),
        (["export", "--data", ".", "--min-reward", "1"], "nor that of a batch"),
    ],
)
def test_what_a_user_got_wrong_is_one_sentence_and_exit_2(words: list[str], sentence: str, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")] if words[0] == "rollout" else []
    done = command(*words, *out)
    assert done.returncode == 2, done
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


GATEWAY = ("gateway", "--engine", "scripted:tests.policies:is_empty", "--tokenizer", "{tokenizer}", "--port", "0")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*GATEWAY, "--data", "{file}"), "cannot be used as the gateway's store"),
        ((*GATEWAY, "--data", "{folder}"), "file is not a database"),
        ((*GATEWAY, "--data", "{store}", "--host", "192.0.2.1", "--admin-key", "k"), "192.0.2.1"),
        (("rollout", "--out", "{file}"), "{file}"),
        (("export", "--data", "{store}", "--out", "{file}/below"), "{file}"),
    ],
)
def test_what_the_machine_refuses_is_one_sentence_that_names_it(
    words: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    places = {"file": tmp_path / "file", "folder": tmp_path / "folder", "store": tmp_path / "store"}
    places["file"].write_text("not a folder")
    places["folder"].mkdir()
    (places["folder"] / "gateway.sqlite3").write_text("not a database, whatever its name says")
    store = Store.open(places["store"])
    asyncio.run(store.create_session(SessionRecord("s", 0.0), "key"))
    store.close()
    done = command(*(word.format(tokenizer=qwen3_dir(), **places) for word in words))
    assert done.returncode in (1, 2), done
    assert sentence.format(**places) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flag", ["--port=70000", "--port=-1", "--workers=0", "--window=-5"])
def test_a_number_no_gateway_can_have_is_refused_by_its_flag(flag: str) -> None:
    done = command("gateway", flag)
    assert done.returncode == 2
    assert flag.partition("=")[0] in done.stderr


def test_a_rollout_with_a_scripted_policy_leaves_its_files_and_one_json_line(tmp_path: Path) -> None:
    out, task = tmp_path / "out", write_task(tmp_path / "write-42")
    done = command(
        *("rollout", "--json", "--dataset", str(task), "--harness", "tests.tiny_harness:TINY", "--out", str(out)),
        *("--engine", f"scripted:{REPOSITORY}/tests/tiny_policy.py:write_42", "--tokenizer", str(qwen3_dir())),
    )
    assert done.returncode == 0, done
    [line] = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["ok"], result["reward"], result["counts"]["rows"]) == (True, 1.0, 1)
    files = ["batch.json", "results.jsonl", "results.parquet", "rows.jsonl"]
    assert sorted(path.name for path in out.glob("[a-z]*")) == sorted([*files, "gateway", "logs", "traces"])
    exported = command("export", "--data", str(out), "--format", "rows", "--out", str(tmp_path / "r.jsonl"))
    assert exported.returncode == 0, exported
    [row] = [json.loads(text) for text in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert row["trained_tokens"] == result["counts"]["trainable_tokens"]


def test_nothing_but_a_line_per_rollout_stands_on_standard_output_and_a_second_run_repeats_it(tmp_path: Path) -> None:
    task, scripted = write_task(tmp_path / "write-42"), f"scripted:{REPOSITORY}/tests/tiny_policy.py:write_42"
    words = ["rollout", "--json", "--dataset", str(task), "--harness", "tests.tiny_harness:TINY", "--attempts", "2"]
    words += ["--engine", scripted, "--tokenizer", str(qwen3_dir()), "--out", str(tmp_path / "out")]
    first, second = command(*words), command(*words)
    assert first.stdout == second.stdout
    assert [json.loads(line)["name"][-1] for line in first.stdout.splitlines()] == ["0", "1"]
    assert "settled by an earlier run" in second.stderr
    other = command(*words, "--temperature", "0.5")
    assert (other.returncode, "--temperature: 1.0 then, 0.5 now" in other.stderr) == (2, True)


def test_a_dead_engine_is_refused_before_anything_runs(tmp_path: Path) -> None:
    words = ["rollout", "--dataset", str(write_task(tmp_path / "t")), "--harness", "tests.tiny_harness:TINY"]
    words += ["--tokenizer", str(qwen3_dir()), "--out", str(tmp_path / "out")]
    done = command(*words, "--llm-url", "http://127.0.0.1:9", "--model", "m")
    assert done.returncode == 2, done
    assert "nothing listens at http://127.0.0.1:9" in done.stderr
    assert "--wait-for-engine" in done.stderr
    assert not (tmp_path / "out" / "results.jsonl").exists()


def test_the_command_that_goes_on_names_the_folder_and_no_secret(tmp_path: Path) -> None:
    typed = ["/bin/openenv-harbor", "rollout", "--llm-api-key", "hush", "--admin-key=hush", "--no-resume", "-n", "2"]
    command = f"/bin/openenv-harbor rollout -n 2 --out {tmp_path}"
    assert again(typed, tmp_path) == command
    assert again(typed, tmp_path, ["A", "B"]) == f"{command}  # with A and B set"
    assert again(["o", "rollout", "--out", "my runs"], tmp_path) == "o rollout --out 'my runs'"


def test_a_task_cannot_have_the_keys_of_the_command_that_runs_it(tmp_path: Path) -> None:
    task = write_task(tmp_path / "asks")
    with (task / "task.toml").open("a") as file:
        file.write('[verifier.env]\nTAKEN = "${OPENENV_LLM_API_KEY}"\n')
    words = ("--harness", "tests.tiny_harness:TINY", "--llm-url", "http://127.0.0.1:9", "--llm-api-key", "hush")
    done = command("rollout", "--dataset", str(task), *words, "--out", str(tmp_path / "out"))
    assert (done.returncode, "OPENENV_LLM_API_KEY is not set" in done.stderr) == (2, True), done
    assert "hush" not in done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_batch_ends_with_a_record_and_a_summary(number: signal.Signals, tmp_path: Path) -> None:
    out, task = tmp_path / "out", write_task(tmp_path / "write-42")
    words = ["rollout", "--dataset", str(task), "--harness", "tests.tiny_harness:TINY", "--out", str(out)]
    words += ["--engine", f"scripted:{REPOSITORY}/tests/tiny_policy.py:never", "--tokenizer", str(qwen3_dir())]
    running = subprocess.Popen(
        [sys.executable, "-m", "harbor_env.cli", *words],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with running:
        assert running.stdout
        began = next(line for line in running.stdout if line.rstrip().endswith("..."))
        running.send_signal(number)
        printed, said = running.communicate(timeout=100)
    assert "task 0: write-42" in began
    assert (running.returncode, "Traceback" in said) == (130, False), said
    assert "cancelled 1" in printed
    assert f"Interrupted: 0 of 1 rollout kept. Go on with:\n  {sys.executable} -m harbor_env.cli rollout" in printed
    [result] = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert (result["ok"], result["reason"]["kind"]) == (False, "cancelled")


def test_a_finished_rollout_is_one_line() -> None:
    line = "   ok    reward=1.00  turns=9  roots=1  rows=1  tokens=1043  atif=match  12s"
    assert result_line(OK) == line
    assert result_line(FAILED) == "   FAIL  engine: It is down.  0s"


def test_the_summary_counts_per_harness_and_tells_what_could_not_be_scored() -> None:
    lines = summary([OK, FAILED])
    row = ["h", "2", "1", "100%", "21%-100%", "1.00", "9", "1", "1043", "engine", "1"]
    assert lines[2].split() == row
    assert [line.split(":")[0].strip() for line in lines[3:]] == ["atif=match", "unscorable"]
