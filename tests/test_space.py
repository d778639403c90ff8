"""The Space `push` makes: a folder anybody may read, settings beside it, and a server that answers as a Space's."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
import yaml
from dockerfile_parse import DockerfileParser
from openenv.cli._validation import validate_multi_mode_deployment, validate_running_environment
from openenv.validation import Level, Verdict, run_validation

from harbor_env.client import HarborEnv
from harbor_env.errors import TaskError, UsageError
from harbor_env.models import HarborAction
from harbor_env.serving_gateway import EngineFlags
from harbor_env.space.folder import PACKAGE, left_out, write_folder
from harbor_env.space.hub import HuggingFace, push
from harbor_env.space.plan import ADMIN_KEY, PORT, Space, assignments, plan
from tests.tiny_harness import write_task
from tests.tokenizers import qwen3_dir

ROOT = Path(__file__).resolve().parents[1]
POLICY = ROOT / "tests" / "data" / "space" / "policy.py"
REMOTE = EngineFlags(llm_url="https://engine.example", model="Qwen/Qwen3-8B", llm_api_key="sk-engine-secret")
SECRETS = ("sk-engine-secret", "key-of-the-admin", "key-of-e2b")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    write_task(tmp_path / "numbers" / "train" / "one")
    return tmp_path / "numbers"


@pytest.fixture
def space(dataset: Path) -> Space:
    return plan(
        "me/My_env.2",
        REMOTE,
        datasets=["bundled", str(dataset)],
        sandboxes=["e2b"],
        admin_key="key-of-the-admin",
        variables={"NOTE": "read me"},
        secrets={"E2B_API_KEY": "key-of-e2b"},
    )


@pytest.fixture
def folder(space: Space, tmp_path: Path) -> Path:
    write_folder(space, tmp_path / "space")
    return tmp_path / "space"


@dataclass(slots=True)
class FakeHub:
    """Records what it is asked for, in order; `known` are the secrets of a Space that is there already."""

    known: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def owner(self) -> str:
        return "me"

    def secrets(self, repo: str) -> frozenset[str]:
        return self.known

    def create(self, repo: str, private: bool, hardware: str) -> None:
        self.asked.append(f"create {repo} {private} {hardware}")

    def configure(self, repo: str, variables: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        self.asked.append(f"configure {repo}")
        self.settings, self.told = dict(variables), dict(secrets)

    def upload(self, repo: str, folder: Path) -> None:
        self.asked.append(f"upload {repo}")
        self.files = {str(path.relative_to(folder)): path.read_bytes() for path in files_of(folder)}


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def front_matter(folder: Path) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    return found


def dockerfile(folder: Path) -> DockerfileParser:
    return DockerfileParser(fileobj=io.BytesIO((folder / "Dockerfile").read_bytes()))


def test_no_secret_is_in_any_file_of_the_folder_nor_in_what_is_shown(space: Space, folder: Path) -> None:
    for secret in SECRETS:
        assert [path for path in files_of(folder) if secret.encode() in path.read_bytes()] == []
        assert secret not in repr(space)
        assert secret not in space.variables.values()
    assert set(space.secrets.values()) == set(SECRETS)


def test_the_page_tells_the_hub_how_to_build_and_a_reader_what_is_set(folder: Path) -> None:
    front = front_matter(folder)
    assert (front["sdk"], front["app_port"], front["tags"]) == ("docker", PORT, ["openenv", "harbor"])
    page = (folder / "README.md").read_text()
    for told in (
        "https://me-my-env-2.hf.space",
        "`OPENENV_HARBOR_MODEL` = `Qwen/Qwen3-8B`",
        "`E2B_API_KEY`",
        ADMIN_KEY,
    ):
        assert told in page


def test_the_image_is_built_from_files_that_are_there_and_runs_without_root(folder: Path) -> None:
    """What can be said of a Dockerfile without building it."""
    parser = dockerfile(folder)
    steps = [(step["instruction"], step["value"]) for step in parser.structure]
    assert not any("AS " in value for kind, value in steps if kind == "FROM")
    copied = [word for kind, value in steps if kind == "COPY" for word in value.split() if not word.startswith("--")]
    assert [word for word in copied if not (folder / word).exists()] == []
    users = [index for index, (kind, _) in enumerate(steps) if kind == "USER"]
    assert "--uid 1000 user" in " ".join(value for _, value in steps[: users[0]])
    assert [value for kind, value in steps if kind == "USER"] == ["user"]
    assert steps[-1] == ("CMD", '["server"]')
    extras = re.findall(r"--extra (\S+?)[\"\s]", next(value for kind, value in steps if kind == "ARG") + " ")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert extras == ["server", "e2b"]
    assert set(extras) <= set(project["optional-dependencies"])
    assert project["scripts"]["server"] == "harbor_env.server.app:main"
    settings = dict(part.split("=", 1) for kind, value in steps if kind == "ENV" for part in value.split())
    assert {"OPENENV_HARBOR_PORT": str(PORT), "OPENENV_HARBOR_HOST": "0.0.0.0"}.items() <= settings.items()
    assert yaml.safe_load((folder / "openenv.yaml").read_text())["port"] == PORT
    assert ("EXPOSE", str(PORT)) in steps


def test_a_dataset_of_this_machine_travels_along_but_for_what_is_private(space: Space, dataset: Path) -> None:
    (dataset / "train" / "one" / ".env").write_text("TOKEN=1")
    (dataset / ".git").mkdir()
    write_folder(space, dataset.parent / "space")
    assert space.variables["OPENENV_HARBOR_DATASET"] == "bundled,datasets/numbers"
    travelled = dataset.parent / "space" / "datasets" / "numbers"
    assert (travelled / "train" / "one" / "task.toml").is_file()
    assert [path.name for path in travelled.rglob(".*")] == []
    assert left_out(dataset) == [".git", "train/one/.env"]


@pytest.mark.parametrize("link", ["train/one/environment/link", "link", "notes/link"])
@pytest.mark.parametrize("target", ["/etc", "{}/outside"])
def test_a_link_out_of_a_dataset_is_not_published(space: Space, dataset: Path, link: str, target: str) -> None:
    (dataset.parent / "outside").write_text("mine")
    (dataset / link).parent.mkdir(exist_ok=True)
    (dataset / link).symlink_to(target.format(dataset.parent))
    with pytest.raises(TaskError, match=r"links out of its dataset|link that leaves the dataset"):
        write_folder(space, dataset.parent / "space")
    assert not (dataset.parent / "space").exists()


def test_a_folder_with_something_in_it_is_left_alone(space: Space, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="new or empty"):
        write_folder(space, tmp_path)


def test_an_installation_without_what_a_space_needs_says_so(space: Space, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"lacks pyproject\.toml, uv\.lock"):
        write_folder(space, tmp_path / "space", package=tmp_path / "numbers")


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (EngineFlags(llm_url="http://127.0.0.1:8000"), "leads to no engine from a Space"),
        (EngineFlags(llm_url="http://10.0.0.4:8000"), "leads to no engine from a Space"),
        (EngineFlags(engine="llamacpp:model.gguf"), "names a file here"),
        (EngineFlags(llm_url="https://e.example", tokenizer=str(ROOT / "tests")), "give a hub id"),
    ],
)
def test_an_engine_only_this_machine_has_is_refused(engine: EngineFlags, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plan("me/env", engine)


@pytest.mark.parametrize("repo", ["", "me/", "me/a/b", "../x", "me/..", "-x", "me/env?x"])
def test_a_name_that_is_no_space_is_refused(repo: str) -> None:
    with pytest.raises(UsageError, match="is no Space"):
        plan(repo, REMOTE)


def test_a_secret_named_alone_comes_from_the_environment() -> None:
    assert assignments("--secret", ["A", "B=2=3"], {"A": "1"}) == {"A": "1", "B": "2=3"}
    with pytest.raises(UsageError, match="C is not set"):
        assignments("--secret", ["C"], {})
    with pytest.raises(UsageError, match="KEY=VALUE, not 'A'"):
        assignments("--env", ["A"])
    with pytest.raises(UsageError, match="not 'A B'") as refused:
        assignments("--secret", ["A B=hidden"], {})
    assert "hidden" not in str(refused.value)


def test_a_space_has_its_settings_before_its_files(space: Space, tmp_path: Path) -> None:
    hub = FakeHub()
    pushed = push(hub, replace(space, repo="env", private=True), tmp_path / "space", "cpu-upgrade")
    assert hub.asked == ["create me/env True cpu-upgrade", "configure me/env", "upload me/env"]
    assert (hub.settings, hub.told) == (space.variables, space.secrets)
    assert {"Dockerfile", "README.md", "openenv.yaml", "pyproject.toml", "uv.lock"} <= set(hub.files)
    assert pushed.minted == ""
    assert b"spaces/me/env" in hub.files["README.md"]


def test_an_admin_key_is_minted_once_and_kept_afterwards(tmp_path: Path) -> None:
    hub = FakeHub()
    pushed = push(hub, plan("me/env", REMOTE), tmp_path / "first")
    assert len(pushed.minted) >= 40
    assert hub.told[ADMIN_KEY] == pushed.minted
    assert not any(pushed.minted.encode() in content for content in hub.files.values())
    again = FakeHub(known=frozenset({ADMIN_KEY}))
    assert push(again, plan("me/env", REMOTE), tmp_path / "second").minted == ""
    assert ADMIN_KEY not in again.told


def test_without_a_token_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(UsageError, match="hf auth login"):
        HuggingFace()


@pytest.fixture
def started(dataset: Path, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The folder's server as its image starts it, but for the address it listens on; its output is checked later."""
    scripted = {"OPENENV_HARBOR_ENGINE": f"scripted:{POLICY}:writes", "OPENENV_HARBOR_TOKENIZER": str(qwen3_dir())}
    written = plan("me/env", EngineFlags(), datasets=[str(dataset)], admin_key=SECRETS[1], variables=scripted)
    write_folder(written, tmp_path / "site" / "harbor_env")
    folder = tmp_path / "site" / "harbor_env"
    parser = dockerfile(folder)
    image = {name: value for name, value in parser.envs.items() if name.startswith("OPENENV_")}
    here = {
        "OPENENV_HARBOR_HOST": "127.0.0.1",
        "OPENENV_HARBOR_PORT": "0",
        "OPENENV_HARBOR_DATA": str(tmp_path / "data"),
    }
    code = {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}"}
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", "from harbor_env.server.app import main; main()"],
            cwd=folder,
            env={**os.environ, **image, **written.variables, **written.secrets, **here, **code},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, (tmp_path / "errors").read_text()
        yield json.loads(said)["url"], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def test_the_folder_s_server_answers_as_a_space_would_and_shows_nobody_its_key(
    started: tuple[str, subprocess.Popen[str]], tmp_path: Path
) -> None:
    url, process = started
    report = validate_running_environment(url)
    assert report["passed"], [check for check in report["criteria"] if not check["passed"]]
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert not any(SECRETS[1] in word for one in family for word in one.cmdline())
    assert not any(SECRETS[1] in value for one in family[1:] for value in one.environ().values())
    with HarborEnv(url, admin_key=SECRETS[1]).sync() as env:
        reset = env.reset(split="train")
        step = env.step(HarborAction(harness="tests.tiny_harness:TINY"))
    assert reset.observation.task.name == "one"
    assert step.observation.result.ok, step.observation.result
    assert (step.reward, len(step.observation.result.training_trace().turns)) == (1.0, 2)
    assert SECRETS[1] not in step.observation.model_dump_json()
    for path in files_of(tmp_path / "data"):
        assert SECRETS[1].encode() not in path.read_bytes(), path


def test_openenv_finds_the_folder_valid(folder: Path) -> None:
    assert validate_multi_mode_deployment(folder) == (True, [])
    assert run_validation(folder, max_level=Level.STATIC, skip_build=True).verdict is Verdict.PASS


def test_the_package_has_all_a_space_is_made_of() -> None:
    assert {"pyproject.toml", "uv.lock", "openenv.yaml", "README.md"} <= {path.name for path in PACKAGE.iterdir()}
