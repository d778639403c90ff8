"""The wire APIs a harness may speak: one object each, routes as data; `DIALECTS` closes the package."""

from __future__ import annotations

from harbor_env.gateway.dialects.protocol import Dialect, Route

__all__ = ["Dialect", "Route"]
