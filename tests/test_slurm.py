"""The batch scripts, as plain bash without Slurm: they find each other, end when told, and leave nothing."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox_world import needs_sandbox
from tests.slurm_jobs import FAKES, ROOT, Jobs, appears, slurm_jobs
from tests.tiny_harness import write_task
from tests.tokenizers import qwen3_dir
from tests.waiting import until

BATCH = sorted((ROOT / "slurm").glob("*.sbatch"))
SCRIPTS = [*BATCH, ROOT / "slurm" / "run_folder.sh", ROOT / "slurm" / "submit.sh"]
FROM_OUTSIDE = re.compile(r"\$\{([A-Z_]+):?[-?]")
USED = re.compile(r"\$\{?([A-Z_]{2,})\b")
ASSIGNED = re.compile(r"\b([A-Z_]{2,})=")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with slurm_jobs(tmp_path) as started:
        yield started


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_bash_and_says_at_its_top_what_it_takes(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text()
    shared = (ROOT / "slurm" / "run_folder.sh").read_text()
    told = "".join(line for line in (text + shared).splitlines(True) if line.startswith("#"))
    not_ours = {name for name in USED.findall(text) if name.startswith(("SLURM_", "TMPDIR", "REPO", "PWD", "SECONDS"))}
    assert {name for name in FROM_OUTSIDE.findall(text) if name not in told} - not_ours == set()
    # `set -u` refuses a variable that is nowhere given; none may be left to that.
    assert set(USED.findall(text)) - set(ASSIGNED.findall(text + shared)) - set(FROM_OUTSIDE.findall(text)) <= not_ours


@pytest.mark.parametrize("script", BATCH, ids=lambda path: path.name)
def test_a_batch_script_asks_slurm_for_nothing_a_cluster_decides(script: Path) -> None:
    lines = script.read_text().splitlines()
    asked = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH --")]
    names = {option.partition("=")[0] for option in asked}
    assert f"job-name={script.stem}" in asked
    assert {"output=%x-%j.log", "open-mode=append", "nodes=1"} <= set(asked)
    assert names <= {"job-name", "nodes", "ntasks", "ntasks-per-node", "output", "open-mode", "requeue", "signal"}
    # Slurm stops reading at the first command.
    assert max(map(lines.index, [f"#SBATCH --{option}" for option in asked])) < lines.index("set -euo pipefail")


@pytest.mark.parametrize(
    ("script", "variables", "sentence"),
    [
        *[(script.name, {"RUN": ""}, "name the folder of the run") for script in BATCH],
        *[(script.name, {"REPO": "/"}, "submit it in the checkout's root") for script in BATCH],
        ("engine.sbatch", {"MODEL": "", "ENGINE_COMMAND": ""}, "give MODEL"),
        ("server.sbatch", {"MODEL": ""}, "give MODEL"),
        ("train.sbatch", {}, "give CONFIG"),
        ("evaluate.sbatch", {"ADAPTER": "/nowhere"}, "ADAPTER is the folder with adapter_config.json"),
        ("submit.sh", {"SERVERS": "none"}, "no number of servers"),
        ("submit.sh", {"MODEL": ""}, "name the model"),
        ("submit.sh", {}, "give the YAML file"),
    ],
)
def test_what_is_missing_is_said_before_anything_runs(
    jobs: Jobs, script: str, variables: dict[str, str], sentence: str
) -> None:
    status, printed = jobs.finish(script, **variables)
    assert status
    assert sentence in printed
    assert not list(jobs.local.iterdir())


def test_a_service_that_does_not_come_up_is_not_waited_for_in_vain(jobs: Jobs) -> None:
    status, printed = jobs.finish("engine.sbatch", ENGINE_COMMAND="bash -c 'exit 7'")
    assert (status, "ended with status 7" in printed) == (7, True)
    status, printed = jobs.finish("server.sbatch")
    assert (status, "engine ended with status 7" in printed) == (1, True)
    (jobs.run / "engine.failed").unlink()
    (jobs.run / "engine.url").write_text("http://127.0.0.1:1")
    status, printed = jobs.finish("server.sbatch", WAIT="0")
    assert (status, "engine did not answer within 0 s (http://127.0.0.1:1)" in printed) == (1, True)


async def test_training_finds_all_servers_and_goes_on_where_it_was_ended(jobs: Jobs, tmp_path: Path) -> None:
    engine = jobs.start("engine.sbatch")
    await until(appears(jobs.run / "engine.url", engine))
    jobs.serve_nothing_at("server-0", "server-1")
    (jobs.run / "train.yaml").touch()
    (jobs.run / "settings").write_text("harnesses=[a, b]\n")
    half = jobs.run / "train" / "checkpoint-9"
    half.mkdir(parents=True)

    training = jobs.start("train.sbatch", SERVERS="2", SLURM_JOB_ID="7")
    await until(appears(jobs.run / "train" / "told.json", training))
    status, printed = jobs.end_of(training, signal.SIGUSR1)
    assert (status, "queued again" in printed) == (143, True)
    assert jobs.asked.read_text() == "requeue 7\n"
    told = trained(jobs)
    url = url_of_engine(jobs)
    assert told["servers"] == f"[{url}, {url}]"
    assert (told["engine_url"], told["harnesses"], told["resume"], told["key_length"]) == (url, "[a, b]", False, 48)
    assert stat.S_IMODE((jobs.run / "admin.key").stat().st_mode) == 0o600
    assert not half.exists()

    (jobs.run / "settings").write_text("training.max_steps=0\n")
    assert jobs.finish("train.sbatch")[0] == 0
    assert trained(jobs)["resume"]
    assert jobs.finish("train.sbatch", TRAIN_COMMAND="false")[0] == 1


def url_of_engine(jobs: Jobs) -> str:
    return (jobs.run / "engine.url").read_text().strip()


def trained(jobs: Jobs) -> Any:
    return json.loads((jobs.run / "train" / "told.json").read_text())


async def test_every_server_of_an_array_says_where_it_answers_and_keeps_its_key_to_itself(
    jobs: Jobs, tmp_path: Path
) -> None:
    binaries = tmp_path / "environment" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    (binaries / "openenv-harbor").symlink_to(FAKES / "openenv-harbor")
    given = {"SERVER_ENV": str(binaries.parent), "DATASET": "tasks", "SERVER_ARGS": "--warm --idle 60"}
    engine = jobs.start("engine.sbatch")
    servers = [jobs.start("server.sbatch", **given, SLURM_ARRAY_TASK_ID=place) for place in ("0", "1")]
    for place, server in enumerate(servers):
        await until(appears(jobs.run / f"server-{place}.url", server))
    key = (jobs.run / "admin.key").read_text()
    assert len({path.read_text() for path in jobs.run.glob("*.url")}) == 3
    for words in jobs.asked.read_text().splitlines():
        told = words.split("\t")
        assert told[:7] == ["serve", "--llm-url", url_of_engine(jobs), "--model", "policy", "--tokenizer", "any"]
        assert {"tasks", "127.0.0.1", "--warm", "60", "key of 48"} <= set(told)
    assert not [process for process in jobs.processes() if key in " ".join(process.cmdline())]
    ended = [jobs.end_of(job, signal.SIGTERM) for job in (*servers, engine)]
    assert [status for status, _ in ended] == [0, 0, 0], ended
    assert key not in str(ended)
    assert jobs.left() == ([], [])


@needs_sandbox
@pytest.mark.timeout(300)
async def test_an_evaluation_runs_over_the_runs_engine_and_leaves_nothing(jobs: Jobs, tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "one")
    given = {"DATASET": str(tmp_path / "tasks"), "TOKENIZER": str(qwen3_dir()), "HARNESS": "tests.tiny_harness:TINY"}
    evaluation = jobs.start("evaluate.sbatch", **given, SPLIT="all", EVALUATE_ARGS="--retries 0")
    engine = jobs.start("engine.sbatch")
    status, printed = jobs.end_of(evaluation)
    assert (status, "0.000 [0.000, 0.000]  1 tasks" in printed) == (0, True), printed
    result = json.loads((jobs.run / "evaluations/trained/tests.tiny_harness-TINY/results.jsonl").read_text())
    assert (result["ok"], result["reward"], result["level"]) == (True, 0.0, "tokens")
    assert jobs.end_of(engine, signal.SIGTERM)[0] == 0
    assert jobs.left() == ([], [])


def test_a_run_is_submitted_as_a_chain_that_ends_its_services(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("harnesses: [pi]\n")
    done = subprocess.run(
        ["bash", "slurm/submit.sh", str(tmp_path / "mine.yaml"), "training.max_steps=3", "harnesses=[a, b]"],
        cwd=ROOT,
        env={**jobs.environment, "SERVERS": "2", "PARTITION": "gpus", "TRAIN_SBATCH": "--time=5 --qos=low"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["engine", "1", "server", "2", "train", "3", "evaluate", "4", "stop", "5"]
    engine, server, train, evaluate, stop = [line.split("\t") for line in jobs.asked.read_text().splitlines()]
    assert {"--gres=gpu:1", "--partition=gpus", "slurm/engine.sbatch"} <= set(engine)
    assert {"--array=0-1", "--dependency=after:1", "slurm/server.sbatch"} <= set(server)
    assert not any(word.startswith("--gres") for word in server)
    assert {"--dependency=after:1:2", "--gres=gpu:1", "--time=5", "--qos=low"} <= set(train)
    assert {"--dependency=afterok:3", "--kill-on-invalid-dep=yes"} <= set(evaluate)
    assert {"--dependency=afterany:3:4", "--wrap=scancel 1 2"} <= set(stop)
    assert (jobs.run / "train.yaml").read_text() == "harnesses: [pi]\n"
    assert (jobs.run / "settings").read_text() == "training.max_steps=3\nharnesses=[a, b]\n"


def test_a_chain_that_cannot_be_submitted_to_its_end_leaves_no_services(jobs: Jobs, tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    refusing = f'[[ " $* " != *" --qos=none "* ]] || exit 1\nexec {FAKES}/bin/sbatch "$@"\n'
    cancelling = 'echo "scancel $*" >>"$ASKED"\n'
    for name, script in (("sbatch", refusing), ("scancel", cancelling)):
        (binaries / name).write_text("#!/usr/bin/env bash\n" + script)
        (binaries / name).chmod(0o755)
    jobs.run.mkdir()
    (jobs.run / "train.yaml").touch()
    done = subprocess.run(
        ["bash", "slurm/submit.sh", str(jobs.run / "train.yaml")],
        cwd=ROOT,
        env={**jobs.environment, "TRAIN_SBATCH": "--qos=none", "PATH": f"{binaries}:{jobs.environment['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode, done.stdout
    assert jobs.asked.read_text().splitlines()[-1].split() == ["scancel", "1", "2"]
