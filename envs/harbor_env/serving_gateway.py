"""The gateway behind a batch or a server: one that runs already, or a child process with the engine asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_env.embedded import embedded_model
from harbor_env.gateway.process import gateway_process
from harbor_env.gateway_client import GatewayClient
from harbor_env.rollout import GatewayAddress


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """What serves the rollouts: an engine for a gateway of our own, or a gateway that runs already."""

    llm_url: str = ""
    engine: str = ""
    model: str = ""
    llm_api_key: str = ""
    tokenizer: str = ""
    renderer: str = ""
    window: int = 0
    gateway: str = ""
    admin_key: str = ""


@asynccontextmanager
async def serving_gateway(
    flags: EngineFlags, out: Path, say: Callable[[str], None], *more: str
) -> AsyncIterator[GatewayAddress]:
    """The gateway `flags` name, or one of our own for as long as the block lasts, its store and log below `out`.

    `say` hears of a model that is fetched; `more` are further flags of `gateway.serve`. Raises UsageError or
    GatewayError.
    """
    if flags.gateway:
        async with GatewayClient(flags.gateway, flags.admin_key) as client:
            facts = (await client.health()).get("engine") or {}
        yield _address(flags.gateway, flags.admin_key, flags, facts)
        return
    command = ["--data", str(out / "gateway"), *_engine_command(flags, say), *more]
    async with gateway_process(command, out / "logs" / "gateway.log", llm_api_key=flags.llm_api_key) as running:
        yield _address(running.url, running.admin_key, flags, running.ready)


def _engine_command(flags: EngineFlags, say: Callable[[str], None]) -> list[str]:
    engine, tokenizer = flags.engine, flags.tokenizer
    if engine in ("", "llamacpp") and not flags.llm_url:
        model = embedded_model(say)
        engine, tokenizer = f"llamacpp:{model}", tokenizer or str(model)
    given = {
        "--llm-url": flags.llm_url,
        "--engine": engine,
        "--model": flags.model,
        "--tokenizer": tokenizer,
        "--renderer": flags.renderer,
        "--window": str(flags.window or ""),
    }
    return [part for flag, value in given.items() if value for part in (flag, value)]


def _address(url: str, admin_key: str, flags: EngineFlags, facts: dict[str, Any]) -> GatewayAddress:
    return GatewayAddress(
        url.rstrip("/"),
        admin_key,
        model=_model_name(flags.model or str(facts.get("model") or "")),
        window=int(facts.get("window") or 0),
        level=str(facts.get("level") or ""),
        tito=str(facts.get("tito") or ""),
    )


def _model_name(name: str) -> str:
    """A name a harness can put in a flag or a file: the last part of a path, without its suffix."""
    return name.rstrip("/").rpartition("/")[2].removesuffix(".gguf") or "policy"
