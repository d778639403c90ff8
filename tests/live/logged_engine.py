"""The scripted engine with a log of its own: what it was asked and what it sampled, which exports are held against.

Used as `--engine 'tests.live.logged_engine:open_logged?policy=MODULE:POLICY&log=FILE&...'`; the other options are the
scripted engine's. Invariant: a line is written for every generation that ended, before the gateway sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import Engine, EngineInfo, EngineRequest, EngineSpec
from harbor_env.gateway.engines.scripted import open_scripted
from harbor_env.gateway.types import Generation, Message


def named(messages: Iterable[Message]) -> tuple[str, str]:
    """The rollout and the case that a task names as `(case NAME: CASE)`; empty where a conversation quotes neither."""
    found = (re.search(r"\(case (\S+): ([^)]+)\)", message.content) for message in messages)
    return next(((match[1], match[2]) for match in found if match), ("", ""))


@dataclass(frozen=True)
class Asked:
    """One line of the log: for which rollout, and a generation or, in `error`, the code of a failure."""

    name: str
    prompt: tuple[int, ...]
    sampled: tuple[int, ...] = ()
    error: str = ""


def read_log(path: Path) -> list[Asked]:
    lines = map(json.loads, path.read_text().splitlines())
    return [Asked(line["name"], tuple(line["prompt"]), tuple(line["sampled"]), line["error"]) for line in lines]


def keep_only(path: Path, names: Container[str]) -> None:
    """Forget what was said for other rollouts, which were interrupted and will run again."""
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    path.write_text("".join(line for line in lines if json.loads(line)["name"] in names))


class LoggedEngine:
    """A call that does not name its rollout, for a commit message say, belongs to the one of the call before it."""

    kind = "scripted"

    def __init__(self, engine: Engine, log: Path) -> None:
        self._engine = engine
        self._log = log
        self._name = ""

    async def probe(self) -> EngineInfo:
        return await self._engine.probe()

    async def generate(self, request: EngineRequest) -> Generation:
        self._name = named(request.call.messages)[0] or self._name
        try:
            generation = await self._engine.generate(request)
        except EngineError as error:
            self._write(request.prompt_ids, error=error.kind)
            raise
        self._write(request.prompt_ids, generation.ids)
        return generation

    async def close(self) -> None:
        await self._engine.close()

    def _write(self, prompt: Sequence[int], sampled: Sequence[int] = (), error: str = "") -> None:
        line = {"name": self._name, "prompt": list(prompt), "sampled": list(sampled), "error": error}
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def open_logged(spec: EngineSpec) -> LoggedEngine:
    own = ("policy", "log")
    rest = {name: value for name, value in spec.options.items() if name not in own}
    scripted = replace(spec, kind="scripted", argument=spec.options["policy"], options=rest)
    return LoggedEngine(open_scripted(scripted), Path(spec.options["log"]))
