"""One file of facts per harness; `HARNESSES` closes the package.

A harness is a program nobody changes: what is known about it is data here, and Harbor's own adapter runs it. Every
lookup also takes `module:Name`, either a `Harness` or a Harbor agent class, and any other agent Harbor knows by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from harbor_env.errors import UsageError
from harbor_env.lookup import import_object

DialectName = Literal["chat", "responses", "messages", "gemini"]
KeyPlace = Literal["key", "url"]
"""Where a harness carries its session: as the API key, or, if it sends no key of ours, in the base URL's path."""

HARNESSES: dict[str, str] = {
    "aider": "harbor_env.harnesses.aider:AIDER",
    "claude-code": "harbor_env.harnesses.claude_code:CLAUDE_CODE",
    "codex": "harbor_env.harnesses.codex:CODEX",
    "gemini-cli": "harbor_env.harnesses.gemini_cli:GEMINI_CLI",
    "mini-swe-agent": "harbor_env.harnesses.mini_swe_agent:MINI_SWE_AGENT",
    "opencode": "harbor_env.harnesses.opencode:OPENCODE",
    "openhands-sdk": "harbor_env.harnesses.openhands_sdk:OPENHANDS_SDK",
    "pi": "harbor_env.harnesses.pi:PI",
    "qwen-coder": "harbor_env.harnesses.qwen_code:QWEN_CODE",
    "terminus-2": "harbor_env.harnesses.terminus_2:TERMINUS_2",
}


@dataclass(frozen=True, slots=True)
class RoleMarker:
    """How a conversation that is not the main one is told on the wire.

    `place` is where to look: a request header by `name` (present, and containing `text`), the system text, the text of
    the last user message, or the absence of tools.
    """

    role: Literal["subagent", "compaction", "auxiliary"]
    place: Literal["header", "system", "last_user", "no_tools"]
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Bake:
    """How a harness is installed once into a read-only layer.

    `script` is bash, run as root with a network under `set -euo pipefail`; it installs the pinned version below
    `$PREFIX` and links its commands into /usr/local/bin. `$HOST_PYTHON` is the prefix of the Python that runs this
    package. `check` is a command that exits 0 once the harness is there.
    """

    script: str
    check: str


@dataclass(frozen=True, slots=True)
class Warm:
    """How a harness written in Python is started by forking a process that has imported it.

    Of `modules`, those there are not are left out; none may look for files of a rollout's when it is imported.
    `command` is what the harness is called by and `entry`, as `module:name`, what that calls. `python` and `script`,
    which `command` stands for, lie in the layer, "" where `pypi.script` puts them.
    """

    modules: tuple[str, ...]
    command: str
    entry: str
    python: str = ""
    script: str = ""


@dataclass(frozen=True, slots=True)
class Harness:
    """Everything known about one harness.

    Text in `model`, `env` and `kwargs` may use {model}, {window}, {max_output} and {base_url}; a value that is nothing
    but a number's name becomes that number. `agent` is Harbor's name for it or `module:Class`. `base_url_suffix`
    follows the gateway's URL. `key_variable` carries the session's key. `window_env` and `window_kwargs` are added only
    where the engine's window is known. `configures_itself` says that `kwargs` tell it the URL and the API, so Harbor
    need not. `atif` says that a trajectory is written; `discards` that a reply without a valid call disappears from
    the harness's own history. `variants` holds what differs where it speaks another dialect: `NAME@DIALECT`.
    """

    name: str
    agent: str
    dialect: DialectName
    version: str = ""
    bake: Bake | None = None
    warm: Warm | None = None
    base_url_suffix: str = ""
    key_variable: str = "OPENAI_API_KEY"
    key_place: KeyPlace = "key"
    env: Mapping[str, str] = field(default_factory=dict)
    window_env: Mapping[str, str] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    window_kwargs: Mapping[str, Any] = field(default_factory=dict)
    model: str = "{model}"
    configures_itself: bool = False
    atif: bool = False
    discards: bool = False
    roles: tuple[RoleMarker, ...] = ()
    variants: Mapping[DialectName, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def dialects(self) -> tuple[DialectName, ...]:
        """What it can speak, its own choice first."""
        return (self.dialect, *(name for name in self.variants if name != self.dialect))

    def speaking(self, dialect: str) -> Harness:
        """The same harness in another of its dialects. Raises `UsageError` with those there are."""
        if dialect == self.dialect:
            return self
        if dialect not in self.variants:
            raise UsageError(f"{self.name} speaks {' or '.join(self.dialects)}, not {dialect!r}.")
        return replace(self, **self.variants[dialect])  # type: ignore[index]


def find(name: str) -> Harness:
    """The harness called `name`, or named by `module:Name`, or any other agent of Harbor's; `@DIALECT` may follow.

    Raises `UsageError` with the names there are.
    """
    name, _, dialect = name.partition("@")
    harness = _found(name)
    return harness.speaking(dialect) if dialect else harness


def _found(name: str) -> Harness:
    path = HARNESSES.get(name, name if ":" in name else "")
    if not path:
        return _from_harbor(name)
    try:
        found = import_object(path)
    except ImportError as error:
        raise UsageError(f"Harness {name!r} cannot be imported: {error}.") from error
    if isinstance(found, Harness):
        return found
    from harbor_env.harnesses.wiring import describe_agent

    return describe_agent(name, path, found)


def _from_harbor(name: str) -> Harness:
    from harbor_env.harnesses.wiring import agent_class, agent_names, describe_agent

    if name not in agent_names():
        known = ", ".join(sorted({*HARNESSES, *agent_names()}))
        raise UsageError(f"There is no harness {name!r}. Choose one of: {known}; or give module:Name.")
    return describe_agent(name, name, agent_class(name))
