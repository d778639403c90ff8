"""Settings of the programs in this package, as plain frozen values; nothing here reads the environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harbor_env.errors import UsageError


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """How a gateway runs.

    `engine` is KIND or KIND:ARG (`vllm`, `llamacpp`, `scripted:MODULE:POLICY`); with `llm_url` alone it is `vllm`, with
    neither it is the embedded `llamacpp`. `tokenizer` is a folder, a `.gguf` file or a hub id (default: the model's
    name). `window` overrides the context length the engine reports, in tokens. `body_limit` is in bytes, counted after
    decompression. `keepalive` is the pause between keep-alives of a waiting stream, in seconds. `public_url` is how
    harnesses reach the gateway where that is not its own address.
    """

    llm_url: str = ""
    engine: str = ""
    model: str = ""
    llm_api_key: str = ""
    tokenizer: str = ""
    renderer: str = ""
    chat_template: str = ""
    host: str = "127.0.0.1"
    port: int = 8200
    data: Path = Path("gateway-data")
    workers: int = 1
    admin_key: str = ""
    public_url: str = ""
    body_limit: int = 64 * 2**20
    keepalive: float = 3.0
    window: int = 0
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def engine_spec(self) -> str:
        return self.engine or ("vllm" if self.llm_url else "llamacpp")

    @property
    def url(self) -> str:
        """The address harnesses are given."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url.rstrip("/") or f"http://{host}:{self.port}"

    def check(self) -> None:
        """UsageError where these settings cannot be served together."""
        if not self.host:
            raise UsageError("--host is empty: give an address, 127.0.0.1 for this machine alone, 0.0.0.0 for all.")
        if self.llm_url:
            check_url("--llm-url", self.llm_url)
        if not is_loopback(self.host) and not self.admin_key:
            raise UsageError(
                f"A gateway on {self.host} is reachable from other machines: give --admin-key, or use --host 127.0.0.1."
            )
        if self.workers > 1 and self.engine_spec.split(":")[0] == "llamacpp" and not self.llm_url:
            raise UsageError("The embedded engine lives in one process: use --workers 1, or give --llm-url.")


def check_url(flag: str, url: str) -> None:
    """UsageError where `url` is no base URL a server can have."""
    if "://" not in url:
        raise UsageError(f"{flag} {url} has no scheme: give http://{url.lstrip('/')} or https://{url.lstrip('/')}.")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in url
    except ValueError:  # a port that is no number, an address that is half an IPv6 one
        usable = False
    if not usable:
        raise UsageError(f"{flag} {url} is no server's URL: give one such as http://127.0.0.1:8000.")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
