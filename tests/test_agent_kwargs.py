"""What harnesses' adapters are given, by harness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harbor_env.agent_kwargs import kwargs_of, read_agent_kwargs
from harbor_env.batch import Job
from harbor_env.cli.order import Order
from harbor_env.errors import UsageError
from harbor_env.rollout import GatewayAddress
from harbor_env.serving_gateway import EngineFlags
from harbor_env.tasks import load_dataset

FILE = "pi: {arguments: [--tools, bash]}\npi@messages: {arguments: []}\nmini-swe-agent: {config: {agent: {}}}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "agents.yaml"
    path.write_text(FILE)
    return path


def test_a_harness_takes_its_own_entry_and_a_variant_that_of_its_harness_where_it_has_none(path: Path) -> None:
    entries = read_agent_kwargs(path)
    assert kwargs_of("pi", entries) == kwargs_of("pi@responses", entries) == {"arguments": ["--tools", "bash"]}
    assert kwargs_of("pi@messages", entries) == {"arguments": []}
    assert kwargs_of("codex", entries) == {}


@pytest.mark.parametrize("text", ["[pi]", "pi: bash", "pi: [", ""])
def test_a_file_that_is_something_else_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"agents\.yaml"):
        read_agent_kwargs(path)


def test_each_rollout_of_a_batch_gets_its_harness_s_and_a_resume_with_others_is_noticed(path: Path) -> None:
    order = Order(EngineFlags(), ("pi", "codex"), Path("/out"), agent_kwargs=path)
    order.check()
    task = load_dataset()[0]
    address = GatewayAddress("http://127.0.0.1:1")
    specs = [
        order.spec(Job(harness, 0, task.path, harness, 0), task, address, Path("/out"), {harness: ()})
        for harness in order.harnesses
    ]
    assert [spec.agent_kwargs for spec in specs] == [{"arguments": ["--tools", "bash"]}, {}]
    assert order.settings("")["agent_kwargs"] != replace(order, agent_kwargs=None).settings("")["agent_kwargs"]


def test_a_name_nobody_knows_in_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text("mini-swe-agnet: {}\n")
    with pytest.raises(UsageError, match="mini-swe-agnet"):
        Order(EngineFlags(), ("pi",), Path("/out"), agent_kwargs=path).check()
