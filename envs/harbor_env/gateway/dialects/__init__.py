"""The wire APIs a harness may speak: one object each, routes as data; `DIALECTS` closes the package."""

from __future__ import annotations

from harbor_env.gateway.dialects.chat import CHAT
from harbor_env.gateway.dialects.messages import MESSAGES
from harbor_env.gateway.dialects.protocol import Dialect, Route
from harbor_env.gateway.dialects.responses import RESPONSES

__all__ = ["DIALECTS", "Dialect", "Route"]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (CHAT, MESSAGES, RESPONSES)}
