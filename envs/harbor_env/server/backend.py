"""What all episodes of a server share: tasks, the gateway and its supervision, and the pool of worker processes.

Invariant: a gateway that dies is started again over the same store, at the same address and with the same key: a
harness that asks again goes on, and the rollout of one that gave up ends as data.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from dataclasses import replace
from typing import Any

from harbor_env.errors import GatewayError, HarborEnvError, UsageError
from harbor_env.gateway_client import GatewayClient
from harbor_env.rollout import GatewayAddress
from harbor_env.server.catalog import Catalog
from harbor_env.server.outages import AWAY, Outages
from harbor_env.server.outside import Outside
from harbor_env.server.pool import Pool
from harbor_env.server.remains import ROLLOUTS, claim
from harbor_env.server.settings import ServerConfig
from harbor_env.serving_gateway import serving_gateway

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between looks at whether the gateway still answers."""
BACK_WITHIN = 60.0
"""Seconds a rollout waits for a gateway that is being started again."""


class Backend:
    """Started once per server, on its event loop; `start` again does nothing."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.catalog = Catalog(config.datasets)
        self.pool = Pool(config.data / "logs" / "workers.log", limit=config.envs)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._address: GatewayAddress | None = None
        self._serving = asyncio.Event()
        self.outages = Outages()
        self._supervision: asyncio.Task[None] | None = None
        public = config.public_url.rstrip("/")
        self.outside = Outside(f"{public}/capture" if public else "")
        self._claim: int | None = None

    async def start(self) -> None:
        """Open the gateway and begin to import Harbor. Raises UsageError, TaskError or GatewayError."""
        if self._supervision is not None:
            return
        self.loop = asyncio.get_running_loop()
        self._claim = await asyncio.to_thread(claim, self.config.data / ROLLOUTS)
        await asyncio.to_thread(lambda: self.catalog.splits)
        await self.pool.start()
        opened: asyncio.Future[None] = self.loop.create_future()
        self._supervision = asyncio.create_task(self._supervise(opened))
        self._supervision.add_done_callback(_unwatched)
        await asyncio.wait({opened, self._supervision}, return_when=asyncio.FIRST_COMPLETED)
        await (opened if opened.done() else self._supervision)

    async def close(self) -> None:
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait({self._supervision})
        await self.pool.close()
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    @property
    def address(self) -> GatewayAddress | None:
        """The gateway as this machine sees it; None while it is being started."""
        return self._address

    async def gateway(self, sandbox: str) -> GatewayAddress:
        """The gateway as `sandbox` reaches it. UsageError: it cannot; GatewayError: there is none just now."""
        try:
            async with asyncio.timeout(BACK_WITHIN):
                await self._serving.wait()
        except TimeoutError:
            raise GatewayError("engine_down", AWAY) from None
        address = self._address
        if address is None:
            raise GatewayError("engine_down", AWAY)
        if sandbox == "local" or (self.config.engine.gateway and not self.outside.url):
            return address
        if not self.outside.url:
            raise UsageError(
                f"A {sandbox!r} sandbox cannot reach {address.url}: start the server with --expose, or with"
                " --public-url and an address that leads here from outside."
            )
        return replace(address, public=await self.outside.reached())

    async def counts(self, session: str) -> dict[str, Any]:
        """What the gateway says of a session so far; {} where it cannot be asked."""
        if self._address is None or not session:
            return {}
        with contextlib.suppress(GatewayError, TimeoutError):
            async with asyncio.timeout(5), GatewayClient(self._address.url, self._address.admin_key) as client:
                return await client.counts(session)
        return {}

    async def engine_facts(self) -> dict[str, Any]:
        """What the gateway measured of its engine: ready, level, model, window, tito."""
        if self._address is None:
            return {"ready": False}
        with contextlib.suppress(GatewayError, TimeoutError):
            async with asyncio.timeout(5), GatewayClient(self._address.url) as client:
                return dict((await client.health()).get("engine") or {})
        return {"ready": False}

    async def _supervise(self, opened: asyncio.Future[None]) -> None:
        workers = self.config.gateway_workers
        before: GatewayAddress | None = None
        while True:
            try:
                engine, data = self.config.engine, self.config.data
                async with serving_gateway(engine, data, _say, workers=workers, after=before) as address:
                    self._address = before = replace(address, patience=BACK_WITHIN)
                    self._serving.set()
                    try:
                        self.outages.heard(time.monotonic())
                        if not opened.done():
                            opened.set_result(None)
                        await self._until_down(address)
                    finally:
                        self._serving.clear()
                        self._address = None
            except (HarborEnvError, OSError) as error:
                if not opened.done():
                    opened.set_exception(error)
                    return
                log.error("The gateway could not be started: %s", error)
                before = None  # its port may have been taken
                await asyncio.sleep(LOOK_EVERY)

    async def _until_down(self, address: GatewayAddress) -> None:
        async with GatewayClient(address.url) as client:
            while True:
                await asyncio.sleep(LOOK_EVERY)
                try:
                    async with asyncio.timeout(60):
                        await client.health()
                    self.outages.heard(time.monotonic())
                except (GatewayError, TimeoutError) as error:
                    self.outages.lost()
                    log.error("The gateway is gone and is started again: %s", error)
                    return


def _unwatched(supervision: asyncio.Task[None]) -> None:
    """Supervision ends with the server only; where it fails, a gateway that dies stays dead, and that must be heard."""
    if not supervision.cancelled() and (error := supervision.exception()) is not None:
        log.error("The gateway is not supervised any more: %s: %s", type(error).__name__, error)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
