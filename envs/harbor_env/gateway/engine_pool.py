"""Engines in use, each probed before its first turn and again after it was down, with the renderer of its model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import Engine, EngineInfo
from harbor_env.gateway.options import EngineOptions
from harbor_env.gateway.rendering import Renderer


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """An engine that may be asked, and what it was measured to be."""

    engine: Engine
    info: EngineInfo
    renderer: Renderer | None

    def facts(self) -> dict[str, Any]:
        """What a person or a client is told of it; `tito` None: no token ids travel."""
        facts = {"level": self.info.level, "model": self.info.model, "window": self.info.max_model_len}
        facts |= {"route": self.info.route, "tito": self.renderer.tito if self.renderer else None}
        return facts | ({"renderer": self.renderer.name} if self.renderer else {})


@dataclass(frozen=True, slots=True)
class Parts:
    """An engine, what makes the one that stands in for it below level `tokens`, and the renderer of its model.

    `why_no_renderer` is the reason where `renderer` is None.
    """

    engine: Engine
    hosted: Callable[[], Engine | None]
    renderer: Renderer | None
    why_no_renderer: str = ""


MakeParts = Callable[[EngineOptions | None], Parts]


class EnginePool:
    """One entry per engine configuration; `None` is the gateway's own. `window` overrides what engines report."""

    def __init__(self, make: MakeParts, *, window: int = 0) -> None:
        self._make = make
        self._window = window
        self._parts: dict[EngineOptions | None, Parts] = {}
        self._open: dict[EngineOptions | None, OpenEngine] = {}
        self._hosted: dict[EngineOptions | None, Engine] = {}
        self._locks: dict[EngineOptions | None, asyncio.Lock] = {}

    def known(self, options: EngineOptions | None) -> OpenEngine | None:
        """The engine if it was probed well, without waiting."""
        return self._open.get(options)

    async def get(self, options: EngineOptions | None) -> OpenEngine:
        """The engine, probed. EngineError while it is down; the next call probes again."""
        found = self._open.get(options)
        if found is not None:
            return found
        async with self._locks.setdefault(options, asyncio.Lock()):
            if options not in self._open:
                self._open[options] = await self._probe(options)
            return self._open[options]

    async def make(self, options: EngineOptions | None) -> Parts:
        """What the options name, made once and not contacted. UsageError where they name nothing."""
        if options not in self._parts:
            made = await asyncio.to_thread(self._make, options)
            self._parts.setdefault(options, made)
        return self._parts[options]

    async def close(self) -> None:
        for engine in (*(parts.engine for parts in self._parts.values()), *self._hosted.values()):
            await engine.close()

    async def _probe(self, options: EngineOptions | None) -> OpenEngine:
        parts = await self.make(options)
        info = await parts.engine.probe()
        window = self._window or info.max_model_len
        if not window:
            raise EngineError("engine_error", "The engine does not say how long its context is: give --window TOKENS.")
        info = replace(info, max_model_len=window)
        if info.level == "tokens":
            if parts.renderer is None:
                raise EngineError("engine_error", f"This engine takes token ids, but {parts.why_no_renderer}.")
            return OpenEngine(parts.engine, info, parts.renderer)
        hosted = parts.hosted()
        if hosted is None:
            return OpenEngine(parts.engine, info, None)
        self._hosted[options] = hosted
        return OpenEngine(hosted, info, None)
