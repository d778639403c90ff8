"""Warm starts in a sandbox: a fork server for its harness, a shim in the command's place, and what came of both.

Invariant: a warm start is never needed. Whatever is in its way, the command starts cold and `cold` says why. A process
has a fork server of its own for what is to be started, or, where it was told of one who lends, a line to that one's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
import weakref
from dataclasses import asdict
from pathlib import Path

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import Base
from harbor_env.sandboxes.fork_line import DOOR, Line
from harbor_env.sandboxes.fork_server import IMPORTED_WITHIN, ForkServer, WarmStart
from harbor_env.sandboxes.layers import digest
from harbor_env.sandboxes.lending import Wanted, borrow
from harbor_env.sandboxes.pace import StartRate, place_of
from harbor_env.sandboxes.places import Places
from harbor_env.sandboxes.sandbox import Sandbox

_SHIM = Path(__file__).parent / "inside/shim.py"
AT_ONCE = StartRate(per_second=0.0, running=2)
"""Fork servers that start at a time on a machine: each takes a processor for seconds."""
AGAIN_AFTER = 300.0
"""Seconds until one that could not be started is tried again; until then its reason is everybody's."""
_Servers = dict[str, asyncio.Task[Line]]
_servers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Servers] = weakref.WeakKeyDictionary()
_asking: socket.socket | None = None


class Warming:
    """The warm starts of one sandbox, in the order of the methods below.

    `cold` is why a command of it was not started warm; it is "" until `finish` where nothing was in the way before.
    """

    def __init__(self, start: WarmStart) -> None:
        self._start = start
        self._server: Line | None = None
        self.cold = ""
        self.layers: tuple[Path, ...] = ()
        """To be mounted over the harness's."""
        self.user: int | None = None
        """For `Sandbox.start`."""

    async def prepare(self, where: Places, base: Base, layers: tuple[Path, ...]) -> None:
        """Wait for a fork server on `layers`, the harness's."""
        try:
            self._server = await find_fork_server(Wanted(where, base, layers, self._start))
        except SandboxError as error:
            self._give_up(error)
            return
        self.layers = (await asyncio.to_thread(shim_layer, where, self._start),)
        self.user = self._server.user

    async def attach(self, sandbox: Sandbox) -> None:
        """Before the first command of the sandbox."""
        if self._server is None:
            return
        try:
            await self._server.serve(sandbox)
        except SandboxError as error:
            self._give_up(error)

    def finish(self, sandbox: Sandbox) -> None:
        """After the last one."""
        if self._server is None or self.cold:
            return
        said = self._server.heard(sandbox)
        reasons = [one.cold for one in said if one.cold]
        if reasons or not said:
            why = reasons[0] if reasons else "nothing asked the fork server for it"
            self.cold = f"{self._start.command} was not started warm: {why}"

    def _give_up(self, error: SandboxError) -> None:
        self._server = None
        self.cold = f"{self._start.command} cannot be started warm: {error}"


def borrow_from(asking: socket.socket) -> None:
    """From here on this process starts no fork server while somebody lends at the other side of `asking`."""
    global _asking
    _asking = asking


async def find_fork_server(wanted: Wanted, *, again_after: float = AGAIN_AFTER) -> Line:
    """The event loop's one server for these layers, started or borrowed where there is none or it has ended.

    Raises SandboxError, for every caller within `again_after` seconds, where it could not be started.
    """
    loop = asyncio.get_running_loop()
    servers = _servers.setdefault(loop, {})
    layers = [str(layer) for layer in wanted.layers]
    key = digest("warm", wanted.base.identity, layers, asdict(wanted.start))
    if key not in servers or _ended(servers[key]):
        ended = servers[key].result() if key in servers else None
        servers[key] = starting = asyncio.create_task(_begin(ended, wanted))

        def forget(done: asyncio.Task[Line]) -> None:
            if not done.cancelled() and done.exception() is not None:
                loop.call_later(again_after, servers.pop, key, None)

        starting.add_done_callback(forget)
    return await asyncio.shield(servers[key])


async def _begin(ended: Line | None, wanted: Wanted) -> Line:
    if ended is not None:
        await ended.stop()
    if _asking is not None:
        with contextlib.suppress(EOFError):  # nobody lends any more: one's own does as well
            return await borrow(_asking, wanted)
    return await _start(wanted)


async def _start(wanted: Wanted) -> ForkServer:
    """When not too many others are starting."""
    try:
        async with place_of("fork-server", AT_ONCE, wanted.where.cache) as place:
            async with asyncio.timeout(IMPORTED_WITHIN):
                await place.come()
            return await ForkServer.start(wanted.where, wanted.base, wanted.layers, wanted.start)
    except TimeoutError as error:
        why = f"{AT_ONCE.slots} other fork servers have been starting for {IMPORTED_WITHIN:.0f} seconds"
        raise SandboxError(why) from error
    except OSError as error:
        raise SandboxError(f"there is no fork server: {error}") from error


def _ended(starting: asyncio.Task[Line]) -> bool:
    return starting.done() and starting.exception() is None and not starting.result().running


async def end_fork_servers() -> None:
    """End those this event loop has started, and its lines. The end of the process does it too."""
    for starting in _servers.pop(asyncio.get_running_loop(), {}).values():
        starting.cancel()
        await asyncio.wait({starting})
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().stop()


def shim_layer(where: Places, start: WarmStart) -> Path:
    """Files that put the shim in the command's place, made once."""
    text = _SHIM.read_text(encoding="utf-8").replace("@DOOR@", DOOR).replace("@COLD@", start.cold)
    text = f"#!{start.python} -IS\n{text}"
    target = where.layers / digest("shim", start.command, text)
    if not target.is_dir():
        work = Path(tempfile.mkdtemp(dir=where.layers, prefix="making-"))
        script = work / "fs/usr/local/bin" / start.command
        script.parent.mkdir(parents=True)
        script.write_text(text, encoding="utf-8")
        for path in (script, *script.parents[:4]):
            path.chmod(0o755)
        (work / "layer.json").write_text(json.dumps({"kind": "shim", "name": start.command}), encoding="utf-8")
        try:
            work.rename(target)
        except OSError:  # another process made it first
            shutil.rmtree(work)
    return target / "fs"
