"""Facts about harnesses, and the Harbor configuration they become."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harbor_env.errors import UsageError
from harbor_env.harnesses import HARNESSES, Harness, find
from harbor_env.harnesses.wiring import Connection, agent_config

CONNECTION = Connection(
    root="http://127.0.0.1:9", session_url="http://127.0.0.1:9/sessions/sk-1", key="sk-1", model="m", window=20_000
)
CUSTOM = Harness("mine", "nop", "chat", base_url_suffix="/v1", key_place="url", window_env={"W": "{window}"})


@pytest.mark.parametrize("name", sorted(HARNESSES))
def test_every_described_harness_is_pinned_bakes_and_has_an_adapter(name: str) -> None:
    harness = find(name)
    assert harness.name == name
    assert harness.bake is not None
    assert harness.version in harness.bake.script
    assert str(agent_config(harness, CONNECTION).model_name).rpartition("/")[2] == "m"


def test_the_session_key_travels_in_the_one_variable_harbor_keeps_secret() -> None:
    config = agent_config(find("claude-code"), CONNECTION)
    assert config.env["ANTHROPIC_API_KEY"] == "sk-1"
    assert config.model_api_key_name == "ANTHROPIC_API_KEY"
    assert "sk-1" not in config.model_dump_json()


def test_a_harness_that_sends_no_key_gets_it_in_the_base_url() -> None:
    assert agent_config(CUSTOM, CONNECTION).base_url == "http://127.0.0.1:9/sessions/sk-1/v1"


def test_claude_code_is_told_the_window_only_where_it_is_known() -> None:
    assert agent_config(find("claude-code"), CONNECTION).env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "20000"
    unknown = Connection(root="http://x", session_url="http://x/sessions/k", key="k", model="m")
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS" not in agent_config(find("claude-code"), unknown).env


def test_any_other_harbor_agent_is_wired_by_its_api_format() -> None:
    mimo = find("vibe")
    assert (mimo.dialect, mimo.base_url_suffix, mimo.key_variable) == ("chat", "/v1", "OPENAI_API_KEY")


def test_a_harness_of_ones_own_is_named_by_module_and_name() -> None:
    assert find("tests.test_harnesses:CUSTOM") is CUSTOM
    assert find("harbor.agents.terminus_2:Terminus2").dialect == "chat"


def test_an_unknown_harness_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match=r"no harness 'nope'.*claude-code.*mini-swe-agent"):
        find("nope")


def test_a_module_that_is_not_there_is_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="cannot be imported"):
        find("no_such_module:Thing")


def test_something_that_is_no_harness_is_refused() -> None:
    with pytest.raises(UsageError, match="neither a Harness nor a Harbor agent class"):
        find("json:dumps")


def test_an_agent_that_takes_no_base_url_is_refused() -> None:
    with pytest.raises(UsageError, match="takes no base URL"):
        find("cursor-cli")


def test_a_harness_that_needs_no_litellm_does_not_load_it() -> None:
    code = (
        "import sys, harbor_env.trial; from harbor_env.harnesses import find;"
        "from harbor_env.harnesses.wiring import load_adapter; load_adapter(find('claude-code'));"
        "print('litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "False"
