"""One running sandbox: a root of its own made of layers, a network of its own, and commands run inside.

Invariant: after `stop`, a cancelled `start`, or the death of this process, nothing of it is left: the keeper process
sees to that. Independent of Harbor; `local.py` puts Harbor's interface on it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import is_mapped
from harbor_env.sandboxes.control import Control
from harbor_env.sandboxes.leftovers import claim, remove_cgroups, sweep
from harbor_env.sandboxes.limits import NO_LIMITS, Enforcement
from harbor_env.sandboxes.output import OnOutput, Output
from harbor_env.sandboxes.places import Places
from harbor_env.sandboxes.preflight import obstacle
from harbor_env.sandboxes.root import Bind, Root, specify
from harbor_env.sandboxes.starter import Keeper, start_keeper

__all__ = ["Bind", "Command", "Completed", "Root", "Sandbox"]

OUTPUT_LIMIT = 8 << 20
_KILL_GRACE_S = 5.0
_STOP_GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `isolated` chooses the sandbox's own network over the host's; `confined` puts it under the limits.

    `user` is a name, "uid" or "uid:gid" of the sandbox (None: root). `make_cwd` creates the working folder.
    `stdin` is a descriptor, None for no input.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    user: str | int | None = None
    isolated: bool = True
    confined: bool = True
    make_cwd: bool = False
    stdin: int | None = None
    file_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended: 128 + N for a command ended by signal N."""

    code: int
    stdout: str
    stderr: str


class Sandbox:
    """Made by `await Sandbox.start(...)`."""

    def __init__(self, folder: Path, points: tuple[str, ...], limits: Enforcement) -> None:
        self.folder = folder
        self.points = points
        self.limits = limits
        self.notes: tuple[str, ...] = limits.notes
        self._control: Control | None = None
        self._keeper: Keeper | None = None
        self._claim = -1

    @classmethod
    async def start(
        cls, where: Places, root: Root, *, limits: Enforcement = NO_LIMITS, keep: bool = False, user: int | None = None
    ) -> Sandbox:
        """A sandbox ready for commands; `limits` are its own from here on, and end with it.

        Where sandboxes have user namespaces, it joins `user`, a descriptor of one, instead of making its own.

        With `keep`, its scratch folder outlives it, and is the caller's to remove before `release`.
        """
        folder = where.scratch / (limits.name or uuid.uuid4().hex)
        lock = -1
        try:
            await asyncio.to_thread(sweep, where.scratch)
            lock = claim(folder)
            spec = specify(folder, root, limits, keep)
            sandbox = cls(folder, tuple(point["target"] for point in spec["points"]), limits)
            await sandbox._launch(spec, lock, user)
            if keep:
                sandbox._claim, lock = lock, -1
        except BaseException:
            remove_cgroups(limits.cgroups)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            if lock >= 0:
                os.close(lock)
        return sandbox

    async def _launch(self, spec: dict[str, Any], lock: int, user: int | None) -> None:
        os.write(lock, json.dumps(spec).encode())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = Control(ours)
        try:
            with theirs:
                self._keeper = start_keeper(self.folder, theirs, lock, user)
            self.notes += tuple(await self._control.ready())
        except SandboxError as error:
            await self.stop()
            said = self._keeper.said if self._keeper is not None else ""
            why = await asyncio.to_thread(obstacle)
            advice = f"this machine is in the way: {why}" if why else "`openenv-harbor doctor` says more"
            raise SandboxError(f"the sandbox could not be made: {said or error}; {advice}") from error
        except BaseException:
            await asyncio.shield(self.stop())
            raise

    async def run(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> Completed:
        """Run to the end. Raises TimeoutError after `timeout` seconds; then, or if cancelled, its group is killed."""
        with self._output(output_limit) as output:
            code = await self._attend(command, output, timeout, on_output)
            return Completed(code, output.text("stdout"), output.text("stderr"))

    async def pipe(self, command: Command, out: int, *, timeout: float | None = None) -> Completed:
        """Like `run`, with stdout going to the descriptor `out`."""
        with self._output(OUTPUT_LIMIT) as output:
            code = await self._attend(command, output, timeout, None, out)
            return Completed(code, "", output.text("stderr"))

    def _output(self, limit: int) -> Output:
        if self._control is None or self._control.closed:
            raise SandboxError("the sandbox is not running")
        return Output(self.folder, limit)

    async def _attend(
        self,
        command: Command,
        output: Output,
        timeout: float | None,
        on_output: OnOutput | None,
        out: int | None = None,
    ) -> int:
        number, ended = self._begin(command, output.fileno("stdout") if out is None else out, output.fileno("stderr"))
        follower = asyncio.create_task(output.follow(on_output)) if on_output else None
        try:
            async with asyncio.timeout(timeout):
                code = await asyncio.shield(ended)
        except TimeoutError:
            self.control.kill(number)
            await asyncio.wait([ended], timeout=_KILL_GRACE_S)
            raise
        except asyncio.CancelledError:
            self.control.kill(number)
            raise
        finally:
            if follower is not None:
                follower.cancel()
                await asyncio.wait([follower])
        if on_output:
            await output.drain(on_output)
        return code

    def _begin(self, command: Command, out: int, err: int) -> tuple[int, asyncio.Future[int]]:
        rlimits = dict(self.limits.rlimits) if command.confined else {}
        if command.file_limit is not None:
            rlimits["file"] = command.file_limit
        request = {
            "argv": command.argv,
            "env": dict(command.env),
            "cwd": command.cwd,
            "user": command.user,
            "isolated": command.isolated,
            "confined": command.confined,
            "make_cwd": command.make_cwd,
            "limits": rlimits,
            "cpus": self.limits.cpus if command.confined else (),
            "mapped": is_mapped(),
        }
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            stdin = nothing.fileno() if command.stdin is None else command.stdin
            return self.control.start(request, (stdin, out, err))

    @property
    def control(self) -> Control:
        if self._control is None:
            raise SandboxError("the sandbox has not been started")
        return self._control

    def release(self) -> None:
        """Give up a folder that was kept; from here on any other sandbox that starts may remove it."""
        if self._claim >= 0:
            os.close(self._claim)
            self._claim = -1

    async def stop(self) -> None:
        """End everything inside. Safe to call twice. The scratch folder goes a moment later, in the keeper's hands."""
        if self._control is not None:
            self._control.close()
        keeper = self._keeper
        if keeper is None:
            return
        keeper.let_go()
        try:
            await asyncio.wait_for(keeper.ended(), _STOP_GRACE_S)
        except TimeoutError as error:
            raise SandboxError(
                f"the sandbox in {self.folder} did not end within {_STOP_GRACE_S:.0f} seconds"
            ) from error
