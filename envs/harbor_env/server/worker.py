"""A worker process: one rollout at a time, its own event loop, nothing shared with the server but a socket.

Invariant: when the server is gone its socket ends, and so do the rollout, its sandbox and this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harbor_env.errors import HarborEnvError, SandboxError
from harbor_env.gateway_client import OpenSession
from harbor_env.harnesses import find
from harbor_env.outcome import Kind
from harbor_env.rollout import RolloutSpec, run_rollout
from harbor_env.sandboxes.warm import borrow_from
from harbor_env.scrub import scrub_text
from harbor_env.server.answer import answer, failed
from harbor_env.server.frames import Frames
from harbor_env.server.remains import settle

log = logging.getLogger(__name__)

BEAT = 5.0
"""Seconds between signs of life while a rollout runs."""


@dataclass(frozen=True, slots=True)
class Run:
    """From the server: run this. `keep` leaves the rollout's files; `bake` mounts the harness's layer, made at need."""

    spec: RolloutSpec
    bake: bool = True
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """From the server: end what runs."""


@dataclass(frozen=True, slots=True)
class Alive:
    """From the worker: it is there, and its event loop turns."""

    pid: int


@dataclass(frozen=True, slots=True)
class At:
    """From the worker: how far the rollout is. `session` is the gateway's id of it, "" until it is open.

    `secrets` open that session: whoever reads this rollout's files in the worker's place takes them out.
    """

    phase: str
    session: str = ""
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """From the worker: the fields of a `HarborResult`."""

    result: dict[str, Any]


@dataclass(slots=True)
class _Doing:
    session: str = ""
    secrets: tuple[str, ...] = ()
    layers: dict[str, tuple[Path, ...]] = field(default_factory=dict)


def main(end: socket.socket, asking: socket.socket) -> None:
    """Serve rollouts over `end` until it is closed; then this process ends at once. Fork servers are asked for on
    `asking`."""
    borrow_from(asking)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(end))
    os._exit(0)


async def serve(end: socket.socket) -> None:
    """Run what is ordered over `end`, one rollout at a time; returns once it is closed and nothing runs."""
    frames = await Frames.over(end)
    frames.write(Alive(os.getpid()))
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
    doing = _Doing()
    running: asyncio.Task[None] | None = None
    try:
        while True:
            message = await frames.read()
            if isinstance(message, Run):
                frames.write(Alive(os.getpid()))
                running = asyncio.create_task(_work(message, frames, doing))
            elif running is not None:
                running.cancel()
    except EOFError:
        if running is not None:
            running.cancel()
            await asyncio.wait({running})
    finally:
        await frames.close()


async def _work(run: Run, frames: Frames, doing: _Doing) -> None:
    began = time.monotonic()
    beating = asyncio.create_task(_beat(frames))
    try:
        result = await _rollout(run, frames, doing)
    except asyncio.CancelledError:
        cancelled = failed(run.spec, "cancelled", "The rollout was cancelled.", time.monotonic() - began)
        result = answer(cancelled, run.spec.out)
    except Exception as error:  # noqa: BLE001 - the boundary of a rollout: whatever failed, it ends as data
        kind, sentence = blame(error, (*doing.secrets, *_keys(run.spec)))
        result = answer(failed(run.spec, kind, sentence, time.monotonic() - began), run.spec.out)
    finally:
        beating.cancel()
    await _put_away(run)
    frames.write(Ended(result))


async def _put_away(run: Run) -> None:
    """Keep or remove the rollout's files. Neither a full disk nor a cancellation meanwhile costs its result."""
    settling = asyncio.ensure_future(asyncio.to_thread(settle, run.spec, run.keep))
    while not settling.done():
        with contextlib.suppress(asyncio.CancelledError):  # the rollout has ended: nothing is left to cancel
            await asyncio.wait({settling})
    if (error := settling.exception()) is not None:
        log.error("The files of rollout %s could not be put away: %s", run.spec.name, error)


def blame(error: Exception, secrets: Iterable[str]) -> tuple[Kind, str]:
    """The kind and the sentence of a failure outside the rollout proper, without `secrets`."""
    ours = isinstance(error, HarborEnvError)
    text = str(error) if ours else f"{type(error).__name__}: {error}"
    mended_by_user = ours and not isinstance(error, SandboxError)
    return "task" if mended_by_user else "sandbox", scrub_text(text, secrets)


def _keys(spec: RolloutSpec) -> tuple[str, ...]:
    engine = spec.session.get("engine") or {}
    return spec.gateway.admin_key, str(engine.get("api_key") or "")


async def _rollout(run: Run, frames: Frames, doing: _Doing) -> dict[str, Any]:
    doing.session, doing.secrets = "", ()
    spec = run.spec

    def at(phase: str) -> None:
        frames.write(At(phase, doing.session, doing.secrets))

    def opened(session: OpenSession) -> None:
        doing.session, doing.secrets = session.id, session.secrets
        at("session")

    if run.bake and not spec.layers:
        at("bake")
        spec = replace(spec, layers=await _layers(spec.harness, doing))
    result = await run_rollout(spec, at, opened)
    return await asyncio.to_thread(answer, result, spec.out)


async def _layers(name: str, doing: _Doing) -> tuple[Path, ...]:
    """The harness's baked layer, where it has one; found once per process."""
    if name not in doing.layers:
        harness = find(name)
        if harness.bake is None:
            return ()
        from harbor_env.harnesses.baking import bake_harness

        doing.layers[name] = (await bake_harness(harness, lambda said: None),)
    return doing.layers[name]


async def _beat(frames: Frames) -> None:
    while True:
        await asyncio.sleep(BEAT)
        frames.write(Alive(os.getpid()))
