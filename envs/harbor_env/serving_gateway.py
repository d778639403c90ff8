"""The gateway behind a batch or a server: one that runs already, or a child process with the engine asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harbor_env.config import GatewayConfig
from harbor_env.embedded import embedded_model
from harbor_env.errors import UsageError
from harbor_env.gateway.process import gateway_process
from harbor_env.gateway_client import GatewayClient
from harbor_env.rollout import GatewayAddress


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """What serves the rollouts: an engine for a gateway of our own, or a gateway that runs already."""

    llm_url: str = ""
    engine: str = ""
    model: str = ""
    llm_api_key: str = field(default="", repr=False)
    tokenizer: str = ""
    renderer: str = ""
    window: int = 0
    gateway: str = ""
    admin_key: str = field(default="", repr=False)
    chat_template: str = ""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@asynccontextmanager
async def serving_gateway(
    flags: EngineFlags,
    out: Path,
    say: Callable[[str], None],
    *,
    workers: int = 1,
    after: GatewayAddress | None = None,
) -> AsyncIterator[GatewayAddress]:
    """The gateway `flags` name, or one of our own for as long as the block lasts, its store and log below `out`.

    `say` hears of a model that is fetched; `workers` are the processes of a gateway of our own, which takes the
    place of the one `after`, that died. Raises UsageError or GatewayError.
    """
    if flags.gateway:
        async with GatewayClient(flags.gateway, flags.admin_key) as client:
            health = await client.health()
        if health.get("control") == "open":
            raise UsageError(
                f"The gateway at {flags.gateway} lets everyone open and read sessions, the agents in their sandboxes"
                " too: start it with --admin-key, and give the same key here."
            )
        yield address_of(flags.gateway, flags.admin_key, flags, health.get("engine") or {})
        return
    config = _settings(flags, out / "gateway", workers, say)
    port, admin_key = (urlsplit(after.url).port or 0, after.admin_key) if after else (0, "")
    async with gateway_process(config, out / "logs" / "gateway.log", port=port, admin_key=admin_key) as running:
        yield address_of(running.url, running.admin_key, flags, running.ready)


def _settings(flags: EngineFlags, data: Path, workers: int, say: Callable[[str], None]) -> GatewayConfig:
    engine, tokenizer = flags.engine, flags.tokenizer
    if engine in ("", "llamacpp") and not flags.llm_url:
        model = embedded_model(say)
        engine, tokenizer = f"llamacpp:{model}", tokenizer or str(model)
    return GatewayConfig(
        llm_url=flags.llm_url,
        engine=engine,
        model=flags.model,
        llm_api_key=flags.llm_api_key,
        tokenizer=tokenizer,
        renderer=flags.renderer,
        chat_template=flags.chat_template,
        template_kwargs=flags.template_kwargs,
        window=flags.window,
        data=data,
        workers=workers,
    )


def address_of(url: str, admin_key: str, flags: EngineFlags, facts: dict[str, Any]) -> GatewayAddress:
    """What is known of a gateway and its engine; `facts` as its ready line or its health has them."""
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
