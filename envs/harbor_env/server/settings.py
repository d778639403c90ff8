"""How an environment server runs, from flags or, in a container, from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harbor_env.config import is_loopback
from harbor_env.errors import UsageError
from harbor_env.serving_gateway import EngineFlags

PREFIX = "OPENENV_HARBOR_"
ROLLOUT_BYTES = 300 * 2**20
"""Memory one rollout takes beside the engine: its process and a harness in a local sandbox."""
ROLLOUTS_PER_CORE = 32
"""A rollout mostly waits for the engine."""


def fitting_envs(cores: int, memory: int) -> int:
    """Episodes a machine of that many cores and bytes of memory holds at a time."""
    return max(1, min(ROLLOUTS_PER_CORE * cores, memory // ROLLOUT_BYTES))


def this_machine() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return fitting_envs(len(os.sched_getaffinity(0)), memory)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """`datasets` are served and nothing else. `max_concurrent_envs` 0: what fits this machine.

    `public_url` is how sandboxes elsewhere reach this server; below it lies the gateway, at /capture. `idle` is how
    many seconds an episode may lie still before its slot is given to another; `ping` is the pause between WebSocket
    pings, two of which a client may miss. `data` holds the gateway's store and logs, with `keep_logs` also the files of
    every rollout.
    """

    engine: EngineFlags = field(default_factory=EngineFlags)
    datasets: tuple[str, ...] = ("bundled",)
    host: str = "127.0.0.1"
    port: int = 8000
    admin_key: str = ""
    public_url: str = ""
    data: Path = Path("server-data")
    max_concurrent_envs: int = 0
    gateway_workers: int = 1
    idle: float = 900.0
    ping: float = 20.0
    keep_logs: bool = False

    @property
    def envs(self) -> int:
        return self.max_concurrent_envs or this_machine()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def check(self) -> None:
        """UsageError where these settings cannot be served."""
        if not is_loopback(self.host) and not self.admin_key:
            raise UsageError(
                f"A server on {self.host} is reachable from other machines: give --admin-key, or use --host 127.0.0.1."
            )


def from_environment(variables: Mapping[str, str]) -> ServerConfig:
    """Settings of the app where nobody gave flags: OPENENV_HARBOR_LLM_URL, _MODEL, _DATASET, _ADMIN_KEY and so on.

    Hugging Face says a Space's address in SPACE_HOST.
    """

    def given(name: str, default: str = "") -> str:
        return variables.get(f"{PREFIX}{name}", default)

    space = variables.get("SPACE_HOST", "")
    return ServerConfig(
        engine=EngineFlags(
            llm_url=given("LLM_URL"),
            engine=given("ENGINE"),
            model=given("MODEL"),
            llm_api_key=variables.get("OPENENV_LLM_API_KEY", ""),
            tokenizer=given("TOKENIZER"),
            renderer=given("RENDERER"),
            window=int(given("WINDOW", "0")),
            gateway=given("GATEWAY_URL"),
            admin_key=given("GATEWAY_ADMIN_KEY"),
        ),
        datasets=tuple(name for name in given("DATASET", "bundled").split(",") if name),
        host=given("HOST", "127.0.0.1"),
        port=int(given("PORT", "8000")),
        admin_key=given("ADMIN_KEY"),
        public_url=given("PUBLIC_URL", f"https://{space}" if space else ""),
        data=Path(given("DATA", "server-data")),
        max_concurrent_envs=int(given("MAX_CONCURRENT_ENVS", "0")),
        gateway_workers=int(given("GATEWAY_WORKERS", "1")),
        keep_logs=given("KEEP_LOGS") in ("1", "true"),
    )
