"""Fake backends, by `module:Class`: the local sandbox that refuses to start as the real services' clients do."""

from __future__ import annotations

from typing import Any, ClassVar

from harbor_env.sandboxes.backends import Backend
from harbor_env.sandboxes.local import LocalEnvironment
from harbor_env.sandboxes.pace import StartRate


class RateLimitException(Exception):
    """Named as e2b's."""


class Crowded(LocalEnvironment):
    """Has no room `refusals` times, then starts. `asked` counts."""

    backend: ClassVar[Backend] = Backend(here=True, pace=StartRate(per_second=0, tries=3, first_wait=0.001))
    refusals: ClassVar[int] = 0
    asked: ClassVar[int] = 0
    error: ClassVar[Exception] = RateLimitException("429: Rate limit exceeded, please try again later.")

    def __init__(self, *args: Any, lets_through: str, **kwargs: Any) -> None:
        super().__init__(*args, gateway=lets_through, **kwargs)

    async def start(self, force_build: bool) -> None:
        type(self).asked += 1
        if type(self).refusals > 0:
            type(self).refusals -= 1
            raise self.error
        await super().start(force_build)


class Locked(LocalEnvironment):
    """Has no key, and facts of no kind."""

    @classmethod
    def preflight(cls) -> None:
        raise SystemExit("Locked requires LOCKED_API_KEY to be set.")


class Remote(Crowded):
    """Is taken to be elsewhere."""

    backend: ClassVar[Backend] = Backend()
