"""The wire APIs a harness may speak: one object each, routes as data; `DIALECTS` closes the package."""

from __future__ import annotations

from harbor_env.errors import UsageError
from harbor_env.gateway.dialects.chat import CHAT
from harbor_env.gateway.dialects.gemini import GEMINI
from harbor_env.gateway.dialects.messages import MESSAGES
from harbor_env.gateway.dialects.protocol import Dialect, Route
from harbor_env.gateway.dialects.responses import RESPONSES
from harbor_env.lookup import import_object

__all__ = ["DIALECTS", "Dialect", "Route", "find_dialect"]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES, GEMINI)}


def find_dialect(name: str) -> Dialect:
    """A dialect by its name here, or any `Dialect` object as `module:Name`. UsageError: neither."""
    if name in DIALECTS:
        return DIALECTS[name]
    if ":" not in name:
        raise UsageError(f"Unknown dialect {name!r}. Use one of {', '.join(DIALECTS)}, or module:Name.")
    try:
        found: Dialect = import_object(name)
    except ImportError as error:
        raise UsageError(f"Dialect {name} cannot be loaded: {error}") from error
    return found
