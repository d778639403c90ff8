"""Episodes over several environment servers: each new one goes where fewest of ours run and there is room.

Invariant: a server that is full or does not answer is passed over for a while, never waited for while another is free.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harbor_env.client import HarborEnv
from harbor_env.errors import UsageError
from harbor_env.models import HarborObservation

Ask = dict[str, Any]
"""The arguments of a reset."""

PASSED_OVER = 10.0
"""Seconds for which a server that did not answer is asked last."""
POLL = 1.0
FULL = "CAPACITY_REACHED"


@dataclass(frozen=True, slots=True)
class Opened:
    """An episode that was reset, on the server at `url`."""

    url: str
    env: HarborEnv
    observation: HarborObservation


class Spread:
    """All methods run on one event loop."""

    def __init__(self, urls: Sequence[str], connect: Callable[[str], HarborEnv], patience: float) -> None:
        if not urls:
            raise UsageError("Give at least one server URL.")
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._connect = connect
        self._patience = patience
        self._live: Counter[str] = Counter()
        self._failed_at: dict[str, float] = {}

    async def open(self, ask: Ask) -> Opened:
        """Reset an episode somewhere. ConnectionError: no server had room, or none answered; RuntimeError: refused."""
        deadline = time.monotonic() + self._patience
        while True:
            troubles = []
            for url in self._by_preference():
                try:
                    return await self._open_at(url, ask)
                except ConnectionError as error:
                    self._failed_at[url] = time.monotonic()
                    troubles.append(str(error))
                except RuntimeError as error:
                    if FULL not in str(error):
                        raise
                    troubles.append(f"{url} is full")
            if time.monotonic() > deadline:
                raise ConnectionError(f"No server takes the rollout: {'; '.join(troubles)}.")
            await asyncio.sleep(POLL * random.uniform(0.5, 1.5))

    async def close(self, opened: Opened) -> None:
        self._live[opened.url] -= 1
        await opened.env.close()

    def _by_preference(self) -> list[str]:
        now = time.monotonic()
        recent = {url for url, when in self._failed_at.items() if now - when < PASSED_OVER}
        return sorted(self._urls, key=lambda url: (url in recent, self._live[url]))

    async def _open_at(self, url: str, ask: Ask) -> Opened:
        env = self._connect(url)
        self._live[url] += 1
        try:
            reset = await env.reset(**{name: value for name, value in ask.items() if value not in (None, "")})
        except TimeoutError as error:
            await self._abandon(url, env)
            raise ConnectionError(f"{url} did not answer in time.") from error
        except BaseException:
            await self._abandon(url, env)
            raise
        observation: HarborObservation = reset.observation
        if observation.error:
            await self._abandon(url, env)
            raise RuntimeError(observation.error)
        return Opened(url, env, observation)

    async def _abandon(self, url: str, env: HarborEnv) -> None:
        self._live[url] -= 1
        await env.close()
