"""What samples: token ids in, token ids and log probabilities out. This package does IO."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl

from harbor_env.errors import UsageError
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.types import Call, Finding, Generation, Ids, Level
from harbor_env.lookup import import_object


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What a turn is sampled with. `max_tokens` is already clamped to the window. `seed` None: the engine's choice."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One generation. `call` is the decoded request: a scripted policy and an engine below `tokens` read it;
    `call.messages` is the whole conversation. `turn_index` is how many turns this path already has. `renderer` is the
    session's own, bound to its template variables; a scripted policy speaks through it."""

    id: str
    prompt_ids: Ids
    sampling: SamplingParams
    stop_ids: tuple[int, ...]
    call: Call
    turn_index: int = 0
    renderer: Renderer | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a probe measured. `max_model_len` is the window in tokens, 0 where the engine does not say. `route` says
    which call is used and why."""

    level: Level
    model: str
    max_model_len: int
    route: str = ""
    findings: tuple[Finding, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """Cancelling the task that awaits `generate` aborts the generation at the engine. Raises `EngineError` only.

    `probe` measures and grades; it raises `EngineError` while the engine is down, and is called again later.
    """

    kind: str

    async def probe(self) -> EngineInfo: ...
    async def generate(self, request: EngineRequest) -> Generation: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine is opened from. `argument` is what followed the kind: a URL, a model file, MODULE:POLICY.

    `options` are its `?name=value` pairs. `timeout` is in seconds for one generation, None for no limit.
    """

    kind: str
    argument: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    model: str = ""
    api_key: str = ""
    renderer: Renderer | None = None
    timeout: float | None = None

    def base_url(self) -> str:
        """The engine's URL without a trailing slash, from `--llm-url` or from the argument."""
        found = self.url or (self.argument if "://" in self.argument else "")
        if not found:
            raise UsageError(f"Engine {self.kind} needs a URL: give --llm-url http://HOST:PORT.")
        return found.rstrip("/")

    def number(self, name: str, default: float) -> float:
        """Option `name` as a number. UsageError where it is not one."""
        value = self.options.get(name)
        try:
            return default if value is None else float(value)
        except ValueError:
            raise UsageError(f"Engine option {name}={value} is not a number.") from None

    def only(self, *names: str) -> None:
        """UsageError for an option that this engine does not have."""
        unknown = sorted(set(self.options) - set(names))
        if unknown:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise UsageError(f"Engine {self.kind} has no option {', '.join(unknown)}; {has}.")


OpenEngine = Callable[[EngineSpec], Engine]
_HERE = "harbor_env.gateway.engines"
ENGINES: Mapping[str, str] = {
    "vllm": f"{_HERE}.vllm:open_vllm",
    "sglang": f"{_HERE}.sglang:open_sglang",
    "llamacpp": f"{_HERE}.llamacpp:open_llamacpp",
    "hosted": f"{_HERE}.hosted:open_hosted",
    "scripted": f"{_HERE}.scripted:open_scripted",
}
"""Kind to `module:function`, imported when first asked for. An outsider gives `module:function` instead of a kind."""
REMOTE = ("vllm", "sglang", "llamacpp", "hosted")
"""Kinds that are reached at a URL."""


def open_engine(
    spec: str,
    *,
    url: str = "",
    model: str = "",
    api_key: str = "",
    renderer: Renderer | None = None,
    timeout: float | None = None,
) -> Engine:
    """The engine `spec` names: KIND[:ARGUMENT][?option=value&...], or module:function of another package.

    Contacts nothing. UsageError for a kind, option or argument that cannot be.
    """
    name, _, query = spec.partition("?")
    kind, _, argument = name.partition(":")
    target = ENGINES.get(kind)
    if target is None and argument:
        kind, argument, target = name, "", name
    if target is None:
        raise UsageError(f"There is no engine {kind!r}: use {', '.join(ENGINES)}, or module:function.")
    options = dict(parse_qsl(query, keep_blank_values=True))
    return _load(target)(EngineSpec(kind, argument, options, url, model, api_key, renderer, timeout))


def check_remote(kind: str) -> None:
    """UsageError unless `kind` is an engine behind a URL.

    Whoever opens sessions may name one; code, and files of this machine, are named on the command line only.
    """
    if kind not in REMOTE:
        raise UsageError(f"a session's engine is one of {', '.join(REMOTE)}, at a url; not {kind!r}.")


def _load(target: str) -> OpenEngine:
    try:
        found = import_object(target)
    except ImportError as error:
        raise UsageError(f"Engine {target!r} cannot be loaded: {error}.") from error
    if not _opens_an_engine(found):
        raise UsageError(f"{target} is no engine: neither a class that generates nor a function of one EngineSpec.")
    opened: OpenEngine = found
    return opened


def _opens_an_engine(found: Any) -> bool:
    """Told without calling it: a wrong name may be any function there is."""
    if isinstance(found, type):
        return all(callable(getattr(found, name, None)) for name in ("probe", "generate", "close"))
    if not inspect.isfunction(found):
        return False
    first = next(iter(inspect.signature(found).parameters.values()), None)
    return first is not None and str(getattr(first.annotation, "__name__", first.annotation)).endswith("EngineSpec")
