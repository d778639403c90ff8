"""Facts about harnesses, and the Harbor configuration they become."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harbor.models.model_api_format import ModelApiFormat

from harbor_env.errors import UsageError
from harbor_env.harnesses import HARNESSES, Harness, find
from harbor_env.harnesses.adapters import BakedGeminiCli, BakedPi
from harbor_env.harnesses.wiring import Connection, agent_config, describe_agent
from tests.tiny_harness import TinyAgent

CONNECTION = Connection(
    root="http://127.0.0.1:9", session_url="http://127.0.0.1:9/sessions/sk-1", key="sk-1", model="m", window=20_000
)
MODEL: dict[str, Any] = {"logs_dir": Path(), "model_name": "m", "skip_model_parsing": True}
CUSTOM = Harness("mine", "nop", "chat", base_url_suffix="/v1", key_place="url", window_env={"W": "{window}"})


class AnthropicAgent(TinyAgent):
    MODEL_CONNECTION = replace(TinyAgent.MODEL_CONNECTION, supported_api_formats=[ModelApiFormat.ANTHROPIC_MESSAGES])


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


@pytest.mark.parametrize(
    ("name", "dialect", "suffix", "key"),
    [
        ("vibe", "chat", "/v1", "OPENAI_API_KEY"),
        ("muse-code", "responses", "/v1", "OPENAI_API_KEY"),
        ("antigravity-sdk", "gemini", "", "GEMINI_API_KEY"),
        ("tests.tiny_harness:TinyAgent", "chat", "/v1", "OPENAI_API_KEY"),
    ],
)
def test_any_other_agent_of_harbor_s_or_one_s_own_class_is_wired_by_its_api_format(
    name: str, dialect: str, suffix: str, key: str
) -> None:
    harness = find(name)
    assert (harness.dialect, harness.base_url_suffix, harness.key_variable) == (dialect, suffix, key)
    config = agent_config(harness, CONNECTION)
    assert (config.base_url, config.model_name) == (f"http://127.0.0.1:9{suffix}", "m")
    assert (config.model_api_key_name, config.env[key]) == (key, "sk-1")
    assert (config.import_path or config.name) == name


def test_an_agent_that_speaks_only_anthropic_s_messages_is_wired_by_its_format() -> None:
    harness = describe_agent("mine", "tests.test_harnesses:AnthropicAgent", AnthropicAgent)
    assert (harness.dialect, harness.base_url_suffix, harness.key_variable) == ("messages", "", "ANTHROPIC_API_KEY")


def test_a_harness_of_ones_own_is_named_by_module_and_name() -> None:
    assert find("tests.test_harnesses:CUSTOM") is CUSTOM


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


def test_a_small_window_reaches_gemini_cli_as_the_share_of_a_million_tokens_to_compact_at() -> None:
    gemini = BakedGeminiCli(**MODEL, window=32_768)
    config, _ = gemini._build_settings_config("m", "gemini-api-key")
    assert config is not None
    assert config["model"]["compressionThreshold"] * 1_048_576 == 32_768 / 2
    assert "model" not in (BakedGeminiCli(**MODEL)._build_settings_config("m")[0] or {})


@pytest.mark.parametrize(("window", "free", "kept"), [(20_000, 5_000, 5_000), (200_000, 16_384, 20_000)])
def test_pi_neither_reserves_nor_keeps_more_than_a_quarter_of_a_small_window(window: int, free: int, kept: int) -> None:
    pi = BakedPi(**MODEL, window=window)
    told = _pi_model(pi)["contextWindow"]
    assert pi.compaction()["keepRecentTokens"] == kept
    assert told - pi.compaction()["reserveTokens"] == window - free


def test_pi_may_ask_for_whole_replies_in_a_window_that_its_own_margin_would_fill() -> None:
    margin = 4_096  # pi-ai 1.6.0, dist/api/simple-options.js: CONTEXT_SAFETY_TOKENS
    model = _pi_model(BakedPi(**MODEL, window=4_096, max_output=512))
    assert model["contextWindow"] - margin == 4_096
    assert model["maxTokens"] == 512


def _pi_model(pi: BakedPi) -> dict[str, Any]:
    url = "http://127.0.0.1:1/v1"
    access = SimpleNamespace(
        resolved_base_url=url,
        execution_base_url=url,
        model_api_format=ModelApiFormat.OPENAI_CHAT_COMPLETIONS,
        api_key="k",
        env={"OPENAI_API_KEY": "k"},
    )
    models = pi._build_custom_models_json(access, "m")
    assert models is not None
    (provider,) = models["providers"].values()
    model: dict[str, Any] = provider["models"][0]
    return model


def test_pi_s_own_command_line_is_handed_on_word_by_word() -> None:
    assert BakedPi(**MODEL, arguments=["--system-prompt", "be brief"]).build_cli_flags() == "--system-prompt 'be brief'"


def test_a_harness_that_needs_no_litellm_does_not_load_it_to_price_its_steps_either() -> None:
    code = (
        "import sys, harbor_env.trial; from pathlib import Path;"
        "from harbor_env.harnesses.adapters import BakedClaudeCode, BakedCodex, BakedGeminiCli;"
        "model = {'logs_dir': Path(), 'model_name': 'm', 'skip_model_parsing': True};"
        "claude, codex, gemini = (A(**model) for A in (BakedClaudeCode, BakedCodex, BakedGeminiCli));"
        "prices = [codex._compute_cost_from_pricing(1, 1, 0, 0), gemini._compute_cost_from_pricing(1, 1, 0),"
        " claude._estimate_step_costs([])];"
        "print(prices, 'litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "[None, None, None] False"
