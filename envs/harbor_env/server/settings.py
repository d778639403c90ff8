"""How an environment server runs, from flags or, in a container, from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harbor_env.config import is_loopback
from harbor_env.errors import UsageError
from harbor_env.exposing import find_exposer
from harbor_env.json_flags import json_object
from harbor_env.serving_gateway import EngineFlags

PREFIX = "OPENENV_HARBOR_"
DISTRIBUTION = "openenv-harbor-env"
ROLLOUT_BYTES = 300 * 2**20
"""Memory one rollout takes beside the engine: its process and a harness in a local sandbox."""
ROLLOUTS_PER_CORE = 32
"""A rollout mostly waits for the engine."""


def fitting_envs(cores: int, memory: int) -> int:
    """Episodes a machine of that many cores and bytes of memory holds at a time."""
    return max(1, min(ROLLOUTS_PER_CORE * cores, memory // ROLLOUT_BYTES))


def own_version() -> str:
    """The version of the installed package; "unknown" where it runs from a folder nobody installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def this_machine() -> int:
    """How many episodes at a time its processors and memory bear."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return fitting_envs(len(os.sched_getaffinity(0)), memory)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """`datasets` are served and nothing else. `max_concurrent_envs` 0: what fits this machine.

    The gateway is at /capture of the server's port or, with `gateway_port`, alone at a port of its own (0: a free one)
    on `gateway_host`. `public_url` is how sandboxes elsewhere reach that port; `expose`, a word of `EXPOSERS`, gets
    them an address. `idle` is how many seconds an episode may lie still before its slot is given to another; `ping` is
    the pause between WebSocket pings, two of which a client may miss. `data` holds the gateway's store and logs, with
    `keep_logs` also the files of every rollout. `warm` is every action's, as in `HarborAction`.
    """

    engine: EngineFlags = field(default_factory=EngineFlags)
    datasets: tuple[str, ...] = ("bundled",)
    host: str = "127.0.0.1"
    port: int = 8000
    admin_key: str = field(default="", repr=False)
    public_url: str = ""
    expose: str = ""
    gateway_port: int | None = None
    gateway_host: str = ""
    data: Path = Path("server-data")
    max_concurrent_envs: int = 0
    gateway_workers: int = 1
    idle: float = 900.0
    warm: bool = False
    ping: float = 20.0
    keep_logs: bool = False

    @property
    def envs(self) -> int:
        return self.max_concurrent_envs or this_machine()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def capture(self) -> str:
        """Where the gateway lies below the address of the port it shares or has to itself."""
        return "" if self.gateway_port is not None else "/capture"

    @property
    def door(self) -> tuple[str, int]:
        """Host and port of the gateway: what sandboxes elsewhere have to reach."""
        if self.gateway_port is None:
            return self.host, self.port
        return self.gateway_host or self.host, self.gateway_port

    def check(self) -> None:
        """UsageError where these settings cannot be served."""
        if self.expose:
            find_exposer(self.expose)
        if not is_loopback(self.host) and not self.admin_key:
            raise UsageError(
                f"A server on {self.host} is reachable from other machines: give --admin-key, or {PREFIX}ADMIN_KEY in"
                " its environment, or use --host 127.0.0.1."
            )
        if self.exposed and self.gateway_port is None and not self.admin_key:
            raise UsageError(
                f"Whoever reaches the gateway reaches this server too: give --admin-key, or {PREFIX}ADMIN_KEY in"
                " its environment, or --gateway-port for a port on which the gateway is alone."
            )
        if self.exposed and self.engine.gateway and not self.engine.admin_key:
            raise UsageError(
                f"The gateway at {self.engine.gateway} would let everybody open sessions: run it with an admin key and"
                " give that as --gateway-admin-key."
            )

    @property
    def exposed(self) -> bool:
        """Whether the gateway can be reached from other machines."""
        return bool(self.expose or self.public_url) or not is_loopback(self.door[0])


def from_environment(variables: Mapping[str, str]) -> ServerConfig:
    """Settings of the app where nobody gave flags: OPENENV_HARBOR_LLM_URL, _MODEL, _DATASET, _ADMIN_KEY and so on.

    Hugging Face says a Space's address in SPACE_HOST.
    """

    def given(name: str, default: str = "") -> str:
        return variables.get(f"{PREFIX}{name}") or default

    def number(name: str, default: str = "0") -> int:
        try:
            return int(given(name, default))
        except ValueError:
            raise UsageError(f"{PREFIX}{name} is {given(name)!r}, which is no whole number.") from None

    space = variables.get("SPACE_HOST", "")
    return ServerConfig(
        engine=EngineFlags(
            llm_url=given("LLM_URL"),
            engine=given("ENGINE"),
            model=given("MODEL"),
            llm_api_key=variables.get("OPENENV_LLM_API_KEY", ""),
            tokenizer=given("TOKENIZER"),
            renderer=given("RENDERER"),
            window=number("WINDOW"),
            chat_template=given("CHAT_TEMPLATE"),
            template_kwargs=json_object(f"{PREFIX}TEMPLATE_KWARGS", given("TEMPLATE_KWARGS")),
            gateway=given("GATEWAY_URL"),
            admin_key=given("GATEWAY_ADMIN_KEY"),
        ),
        datasets=tuple(name for name in given("DATASET", "bundled").split(",") if name),
        host=given("HOST", "127.0.0.1"),
        port=number("PORT", "8000"),
        admin_key=given("ADMIN_KEY"),
        public_url=given("PUBLIC_URL", f"https://{space}" if space else ""),
        expose=given("EXPOSE"),
        gateway_port=number("GATEWAY_PORT") if given("GATEWAY_PORT") else None,
        gateway_host=given("GATEWAY_HOST"),
        data=Path(given("DATA", "server-data")),
        max_concurrent_envs=number("MAX_CONCURRENT_ENVS"),
        gateway_workers=number("GATEWAY_WORKERS", "1"),
        idle=float(number("IDLE", "900")),
        warm=given("WARM") in ("1", "true"),
        keep_logs=given("KEEP_LOGS") in ("1", "true"),
    )
