"""A container is set as a user sets flags: every option of `serve` has its variable, and a wrong one is a sentence."""

from __future__ import annotations

import inspect
import os
import tomllib
from pathlib import Path

import pytest

import harbor_env
from harbor_env.cli.serve import serve
from harbor_env.errors import UsageError
from harbor_env.keys import KEYS, forget_keys
from harbor_env.server.settings import DISTRIBUTION, PREFIX, ServerConfig, from_environment, own_version
from harbor_env.serving_gateway import EngineFlags

NAMES = {"llm_api_key": "OPENENV_LLM_API_KEY", "gateway": f"{PREFIX}GATEWAY_URL"}
"""Options whose variable is called otherwise."""


class Asked(dict[str, str]):
    """Variables that remember which of them were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        self.names.add(name)
        return default


def test_every_option_of_serve_has_a_variable() -> None:
    asked = Asked()
    assert from_environment(asked) == ServerConfig()
    options = {NAMES.get(name, f"{PREFIX}{name.upper()}") for name in inspect.signature(serve).parameters}
    assert options - asked.names == set()


def test_variables_say_what_flags_say() -> None:
    config = from_environment(
        {
            "OPENENV_HARBOR_TEMPLATE_KWARGS": '{"enable_thinking": false}',
            "OPENENV_HARBOR_GATEWAY_PORT": "0",
            "OPENENV_HARBOR_GATEWAY_HOST": "0.0.0.0",
            "OPENENV_HARBOR_EXPOSE": "cloudflared",
            "OPENENV_HARBOR_IDLE": "60",
            "OPENENV_HARBOR_DATA": "/data",
        }
    )
    assert config == ServerConfig(
        engine=EngineFlags(template_kwargs={"enable_thinking": False}),
        gateway_port=0,
        gateway_host="0.0.0.0",
        expose="cloudflared",
        idle=60.0,
        data=Path("/data"),
    )


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [("PORT", "80a", "no whole number"), ("TEMPLATE_KWARGS", "[1]", "JSON object")],
)
def test_a_wrong_variable_is_named(name: str, value: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        from_environment({f"{PREFIX}{name}": value})
    assert f"{PREFIX}{name}" in str(refused.value)


def test_keys_are_neither_shown_nor_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS.values():
        monkeypatch.setenv(name, "hidden-key")
    config = from_environment(os.environ)
    assert {config.admin_key, config.engine.admin_key, config.engine.llm_api_key} == {"hidden-key"}
    assert "hidden-key" not in repr(config)
    forget_keys()
    assert [name for name in KEYS.values() if name in os.environ] == []


def test_the_server_tells_the_version_its_package_declares() -> None:
    declared = tomllib.loads((Path(harbor_env.__file__).parent / "pyproject.toml").read_text())["project"]
    assert (DISTRIBUTION, own_version()) == (declared["name"], declared["version"])
