"""From facts about a harness to the configuration Harbor runs it with. Only this file and `adapters` need Harbor.

The session's key goes through one environment variable that Harbor knows to be secret, so that Harbor keeps it out of
what it writes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# litellm, which Harbor's adapters import, fetches a price list at import unless told not to.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from harbor.agents.base import BaseAgent
from harbor.agents.factory import AgentFactory
from harbor.agents.installed.base import BaseInstalledAgent
from harbor.models.agent.name import AgentName
from harbor.models.trial.config import AgentConfig

from harbor_env.errors import UsageError
from harbor_env.harnesses import DialectName, Harness

API_FORMATS: dict[DialectName, str] = {
    "chat": "openai_chat_completions",
    "responses": "openai_responses",
    "messages": "anthropic_messages",
    "gemini": "google_generate_content",
}
DEFAULTS: dict[DialectName, tuple[str, str]] = {
    "chat": ("/v1", "OPENAI_API_KEY"),
    "responses": ("/v1", "OPENAI_API_KEY"),
    "messages": ("", "ANTHROPIC_API_KEY"),
    "gemini": ("", "GEMINI_API_KEY"),
}
DEFAULT_MAX_OUTPUT = 32_000
"""Tokens in one reply, at most, and where the engine's window is not known."""
OUTPUT_SHARE = 8
"""One part in this many of the window is for one reply."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How a harness reaches its session. `window` is the engine's, in tokens; 0 where not known.

    `root` is the gateway's URL as the sandbox sees it, `session_url` the same with the session in its path.
    """

    root: str
    session_url: str
    key: str
    model: str
    window: int = 0
    timeout: float | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def agent_config(harness: Harness, connection: Connection) -> AgentConfig:
    """Harbor's configuration of `harness` for one session. Raises `UsageError` for options the adapter refuses."""
    values: dict[str, Any] = {
        "model": connection.model,
        "window": connection.window,
        "max_output": max_output(connection.window),
    }
    root = connection.session_url if harness.key_place == "url" else connection.root
    values["base_url"] = base_url = root + harness.base_url_suffix
    env, kwargs = harness.env, harness.kwargs
    if connection.window:
        env, kwargs = {**env, **harness.window_env}, _merged(kwargs, harness.window_kwargs)
    told = (
        {}
        if harness.configures_itself
        else {
            "base_url": base_url,
            "model_api_format": API_FORMATS[harness.dialect],
            "model_api_key_name": harness.key_variable,
        }
    )
    place = {"import_path": harness.agent} if ":" in harness.agent else {"name": harness.agent}
    return AgentConfig(
        **place,
        **told,
        model_name=_filled(harness.model, values),
        skip_model_parsing=True,
        override_timeout_sec=connection.timeout,
        env={
            **{name: str(_filled(text, values)) for name, text in env.items()},
            **connection.env,
            harness.key_variable: connection.key,
        },
        kwargs={
            **({"version": harness.version} if harness.version else {}),
            **_filled(kwargs, values),
            **connection.kwargs,
        },
    )


def max_output(window: int) -> int:
    """Tokens a harness may ask for in one reply. It keeps that much room free, so a large share compacts early."""
    return min(window // OUTPUT_SHARE, DEFAULT_MAX_OUTPUT) if window else DEFAULT_MAX_OUTPUT


def load_adapter(harness: Harness) -> bool:
    """Import what runs the harness: seconds of work for some adapters, and nobody's if done while something waits.

    Whether it runs inside the sandbox, so that the gateway must be reached from there.
    """
    place = {"import_path": harness.agent} if ":" in harness.agent else {"name": harness.agent}
    return issubclass(AgentFactory.get_agent_class_from_config(AgentConfig(**place)), BaseInstalledAgent)


def agent_names() -> list[str]:
    return [name for name in AgentFactory.registered_names() if name not in ("oracle", "nop", "acp")]


def agent_class(name: str) -> type[BaseAgent]:
    adapter: type[BaseAgent] = AgentFactory.get_agent_class(AgentName(name))
    return adapter


def describe_agent(name: str, agent: str, adapter: type[BaseAgent]) -> Harness:
    """Facts for a Harbor adapter nobody described, from the API formats it supports: OpenAI's chat before others."""
    if not (isinstance(adapter, type) and issubclass(adapter, BaseAgent)):
        raise UsageError(f"{agent} is neither a Harness nor a Harbor agent class.")
    spec = getattr(adapter, "MODEL_CONNECTION", None)
    supported = {str(getattr(f, "value", f)) for f in getattr(spec, "supported_api_formats", None) or ()}
    dialect = next((d for d, api_format in API_FORMATS.items() if api_format in supported), None)
    if dialect is None:
        raise UsageError(f"Harbor's adapter for {name!r} takes no base URL for an API spoken here.")
    suffix, key_variable = DEFAULTS[dialect]
    atif = bool(getattr(adapter.capabilities, "atif", False))
    return Harness(
        name=name, agent=agent, dialect=dialect, base_url_suffix=suffix, key_variable=key_variable, atif=atif
    )


def _filled(fact: Any, values: Mapping[str, Any]) -> Any:
    """`fact` with every {name} in it replaced, however deep; text that is one name alone becomes its value."""
    if isinstance(fact, str):
        alone = fact[1:-1] if fact[:1] == "{" and fact[-1:] == "}" else ""
        return values[alone] if alone in values else fact.format_map(values)
    if isinstance(fact, Mapping):
        return {_filled(name, values): _filled(inner, values) for name, inner in fact.items()}
    return [_filled(inner, values) for inner in fact] if isinstance(fact, list | tuple) else fact


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, mappings within them merged too; `above` wins."""
    both = {
        name: _merged(below[name], above[name])
        for name in below.keys() & above.keys()
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping)
    }
    return {**below, **above, **both}
