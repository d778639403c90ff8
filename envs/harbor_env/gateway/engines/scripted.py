"""A policy written in Python in place of a model: real tokens, no weights.

A policy is a function of the conversation and the tools that returns the assistant's next message:

    def solve(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        if messages[-1].role == "tool":
            return Message("assistant", "Done.")
        return Message("assistant", tool_calls=(ToolCall("", "bash", '{"command": "ls"}'),))

    openenv-harbor rollout --engine 'scripted:my_policies:solve?noncanonical=0.1&odd_json=0.5&seed=7' --tokenizer DIR

It may be async, and it may return a `Script` to make things go wrong, or raise `EngineError`. A class is instantiated
first. `path/to/file.py:NAME` works as well as `module:NAME`. The reply is composed in the model family's own format and
encoded with its tokenizer; with `noncanonical` (a rate per token) and `odd_json` (a rate per call) it is as awkward as
a sampled one. Options: noncanonical, odd_json, seed, delay (seconds), window (tokens).

Invariant: a generation is a function of the seed, the request and what the policy returned; nothing else is random.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import random
import sys
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

from harbor_env.errors import EngineError, UsageError
from harbor_env.gateway.engines import EngineInfo, EngineRequest, EngineSpec
from harbor_env.gateway.engines.scripted_tokens import Splitter, odd_json, synthetic_logprobs
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.types import Finish, Generation, Message, Tool, ToolCall

WINDOW = 131_072


@dataclass(frozen=True, slots=True)
class Script:
    """A reply of which more can be said than a message holds.

    `cut` ends it at the length limit after that many tokens. `raw` is sampled as plain text instead of a composed
    message, `ids` as they stand. `error` is raised instead. `delay` is in seconds.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    cut: int | None = None
    raw: str | None = None
    ids: tuple[int, ...] = ()
    error: EngineError | None = None
    delay: float = 0.0


Reply = Message | Script
Policy = Callable[[Sequence[Message], Sequence[Tool]], Reply | Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Habits:
    """How the scripted model samples: rates between 0 and 1, `delay` in seconds, `window` in tokens."""

    noncanonical: float = 0.0
    odd_json: float = 0.0
    seed: int = 0
    delay: float = 0.0
    window: int = WINDOW


class ScriptedEngine:
    kind = "scripted"

    def __init__(self, policy: Policy, renderer: Renderer, *, habits: Habits = Habits(), model: str = "") -> None:
        self._policy = policy
        self._renderer = renderer
        self._habits = habits
        self._model = model or "scripted"
        self._splitter = Splitter(renderer)

    async def probe(self) -> EngineInfo:
        return EngineInfo("tokens", self._model, self._habits.window, route="a Python policy")

    async def generate(self, request: EngineRequest) -> Generation:
        length, window = len(request.prompt_ids), self._habits.window
        if length >= window:
            message = f"the prompt is {length} tokens long, the window {window}"
            raise EngineError("overflow", message, prompt_tokens=length, window=window)
        script = await self._reply(request)
        await asyncio.sleep(self._habits.delay + script.delay)
        if script.error is not None:
            raise script.error
        ids = self._sampled(script, request)
        limit = request.sampling.max_tokens if script.cut is None else min(script.cut, request.sampling.max_tokens)
        finish: Finish = "stop" if len(ids) <= limit else "length"
        ids = ids[:limit]
        return Generation(ids, synthetic_logprobs(ids), finish)

    async def close(self) -> None:
        return

    async def _reply(self, request: EngineRequest) -> Script:
        try:
            answer = self._policy(request.call.messages, request.call.tools)
            reply = await answer if inspect.isawaitable(answer) else answer
        except EngineError:
            raise
        except Exception as error:
            raise EngineError("engine_error", f"the policy raised {type(error).__name__}: {error}") from error
        if isinstance(reply, Message):
            return Script(reply.content, reply.reasoning, reply.tool_calls)
        if isinstance(reply, Script):
            return reply
        raise EngineError("engine_error", f"the policy returned a {type(reply).__name__}, not a Message or a Script")

    def _sampled(self, script: Script, request: EngineRequest) -> list[int]:
        if script.ids:
            return list(script.ids)
        dice = self._dice(request)
        if script.raw is not None:
            ids = [*self._renderer.encode(script.raw), self._renderer.stop_ids[0]]
        else:
            calls = tuple(self._respaced(call, request.call.tools, dice) for call in script.calls)
            message = Message("assistant", script.text, reasoning=script.reasoning, tool_calls=calls)
            renderer = request.renderer or self._renderer
            ids = renderer.compose(message, request.call.tools)
        return self._splitter.split(ids, self._habits.noncanonical, dice) if self._habits.noncanonical else ids

    def _respaced(self, call: ToolCall, tools: Sequence[Tool], dice: random.Random) -> ToolCall:
        free_text = any(tool.name == call.name and tool.kind == "custom" for tool in tools)
        if free_text or dice.random() >= self._habits.odd_json:
            return call
        return replace(call, arguments=odd_json(call.arguments, dice))

    def _dice(self, request: EngineRequest) -> random.Random:
        digest = blake2b(array("q", request.prompt_ids).tobytes(), digest_size=16)
        digest.update(f"{self._habits.seed} {request.sampling.seed}".encode())
        return random.Random(digest.digest())


def load_policy(argument: str) -> Policy:
    """The policy `module:NAME` or `path/to/file.py:NAME` names. UsageError where there is none."""
    target, _, name = argument.rpartition(":")
    if not target or not name:
        raise UsageError(f"A scripted engine is scripted:MODULE:POLICY or scripted:FILE.py:POLICY; not {argument!r}.")
    module = _from_file(Path(target).expanduser()) if target.endswith(".py") else _from_name(target)
    policy = getattr(module, name, None)
    if isinstance(policy, type):
        policy = policy()
    if not callable(policy):
        raise UsageError(f"{target} has no policy {name!r}.")
    return policy  # type: ignore[no-any-return]


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"scripted_policy_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"There is no policy file {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses defined in the file look their module up
    spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"There is no policy module {name}: {error}.") from error


def open_scripted(spec: EngineSpec) -> ScriptedEngine:
    """The policy the argument names, spoken with the spec's renderer. UsageError: none, or an unknown option."""
    spec.only("noncanonical", "odd_json", "seed", "delay", "window")
    if spec.renderer is None:
        raise UsageError("A scripted engine speaks for a model: give --tokenizer a folder or a .gguf file.")
    habits = Habits(
        noncanonical=spec.number("noncanonical", 0.0),
        odd_json=spec.number("odd_json", 0.0),
        seed=int(spec.number("seed", 0)),
        delay=spec.number("delay", 0.0),
        window=int(spec.number("window", WINDOW)),
    )
    return ScriptedEngine(load_policy(spec.argument), spec.renderer, habits=habits, model=spec.model)
