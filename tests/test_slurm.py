"""The batch scripts, as plain bash without Slurm: they find each other, end when told, and leave nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.sandbox_world import needs_sandbox
from tests.tiny_harness import write_task
from tests.tokenizers import qwen3_dir
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent
FAKES = ROOT / "tests" / "data" / "slurm"
BATCH = sorted((ROOT / "slurm").glob("*.sbatch"))
SCRIPTS = [*BATCH, *sorted((ROOT / "slurm").glob("*.sh"))]
FROM_OUTSIDE = re.compile(r"\$\{([A-Z_]+):?[-?]")
USED = re.compile(r"\$\{?([A-Z_]{2,})\b")
ASSIGNED = re.compile(r"\b([A-Z_]{2,})=")


class Jobs:
    """Scripts run as Slurm would run them on one node, in one run's folder, over a fake engine."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.run = folder / "run"
        self.asked = folder / "asked"
        self.local = folder / "local"
        self.local.mkdir()
        self._stack = stack
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OPENENV_"))},
            "PATH": f"{FAKES / 'bin'}:{os.environ['PATH']}",
            "RUN": str(self.run),
            "ASKED": str(self.asked),
            "TMPDIR": str(self.local),
            "SERVER_ENV": sys.prefix,
            "PYTHONPATH": str(ROOT),
            "HOST": "127.0.0.1",
            "POLL": "0.1",
            "MODEL": "any",
            "ENGINE_COMMAND": f"{sys.executable} {FAKES / 'fake_engine.py'} $PORT",
            "TRAIN_COMMAND": f"{sys.executable} {FAKES / 'fake_trainer.py'}",
        }

    def start(self, script: str, **variables: str) -> subprocess.Popen[str]:
        job = subprocess.Popen(
            ["bash", f"slurm/{script}"],
            cwd=ROOT,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._stack.enter_context(job)
        self._stack.callback(job.terminate)
        return job

    def finish(self, script: str, **variables: str) -> tuple[int, str]:
        """Its exit status, and what it printed."""
        return self.end_of(self.start(script, **variables))

    def end_of(self, job: subprocess.Popen[str], told: int = 0) -> tuple[int, str]:
        if told:
            job.send_signal(told)
        printed, _ = job.communicate()
        return job.returncode, printed

    def serve_nothing_at(self, *names: str) -> None:
        """As if services of these names were up: something answers at their address."""
        url = (self.run / "engine.url").read_text()
        for name in names:
            (self.run / f"{name}.url").write_text(url)

    def processes(self) -> list[psutil.Process]:
        """Every process of the run."""
        return [process for process in psutil.process_iter() if self._belongs(process)]

    def left(self) -> tuple[list[psutil.Process], list[Path]]:
        return self.processes(), [*self.local.iterdir(), *self.run.glob("*.url")]

    def _belongs(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("RUN") == str(self.run)
        except psutil.Error:
            return False


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with ExitStack() as stack:
        yield Jobs(tmp_path, stack)


def appears(path: Path, job: subprocess.Popen[str]) -> Callable[[], bool]:
    """Whether the file is there; AssertionError with what the job printed where it ended before."""

    def check() -> bool:
        assert path.exists() or job.poll() is None, job.communicate()
        return path.exists()

    return check


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


async def test_every_node_runs_a_rank_of_the_engine_and_all_end_together(jobs: Jobs) -> None:
    engine = jobs.start("engine.sbatch", SLURM_NNODES="2")
    await until(appears(jobs.run / "engine.url", engine))
    status, printed = jobs.end_of(engine, signal.SIGTERM)
    assert (status, {"rank 0 is up", "rank 1 is up"} <= set(printed.splitlines())) == (0, True)
    assert jobs.left() == ([], [])


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
    url = (jobs.run / "engine.url").read_text().strip()
    assert told["servers"] == f"[{url}, {url}]"
    assert (told["engine_url"], told["harnesses"], told["resume"], told["key_length"]) == (url, "[a, b]", False, 48)
    assert stat.S_IMODE((jobs.run / "admin.key").stat().st_mode) == 0o600
    assert not half.exists()

    (jobs.run / "settings").write_text("training.max_steps=0\n")
    assert jobs.finish("train.sbatch")[0] == 0
    assert trained(jobs)["resume"]
    assert jobs.finish("train.sbatch", TRAIN_COMMAND="false")[0] == 1


def trained(jobs: Jobs) -> Any:
    return json.loads((jobs.run / "train" / "told.json").read_text())


@needs_sandbox
async def test_engine_server_and_evaluation_find_each_other_and_leave_nothing(jobs: Jobs, tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "one")
    given = {"DATASET": str(tmp_path / "tasks"), "TOKENIZER": str(qwen3_dir()), "SPLIT": "all"}
    server = jobs.start("server.sbatch", **given)
    evaluation = jobs.start("evaluate.sbatch", **given, HARNESS="tests.tiny_harness:TINY", EVALUATE_ARGS="--retries 0")
    engine = jobs.start("engine.sbatch")
    await until(appears(jobs.run / "server-0.url", server))
    key = (jobs.run / "admin.key").read_text()
    assert not [process for process in jobs.processes() if key in " ".join(process.cmdline())]
    status, printed = jobs.end_of(evaluation)
    assert (status, "0.000 [0.000, 0.000]  1 tasks" in printed) == (0, True), printed
    [result] = (jobs.run / "evaluations/trained/tests.tiny_harness-TINY/results.jsonl").read_text().splitlines()
    assert (json.loads(result)["ok"], json.loads(result)["reward"], json.loads(result)["level"]) == (
        True,
        0.0,
        "tokens",
    )
    ended = [jobs.end_of(job, signal.SIGTERM) for job in (server, engine)]
    assert [status for status, _ in ended] == [0, 0], ended
    assert key not in str(ended) + printed
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
