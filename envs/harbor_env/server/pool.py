"""Worker processes as the server sees them: taken for a rollout, given back, ended when they hang.

Invariant: `run` ends within the rollout's deadline plus `GRACE`, with a result or CancelledError, whatever the worker
does; a worker that crashed or hung serves nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_env.errors import SandboxError
from harbor_env.harnesses import HARNESSES, find
from harbor_env.sandboxes.lending import Lender, asking_pair
from harbor_env.sandboxes.warm import end_fork_servers, find_fork_server
from harbor_env.server.answer import answer, failed
from harbor_env.server.frames import Frames
from harbor_env.server.remains import clear, last_words
from harbor_env.server.worker import Alive, At, Cancel, Ended, Run

SILENCE = 120.0
"""Seconds without a sign of life after which a worker hangs; it gives one every few seconds."""
GRACE = 20.0
"""Seconds a cancelled rollout has to take its sandbox down before its process is killed."""
READY_WITHIN = 180.0
"""Seconds until a worker answers; the first waits for Harbor to be imported."""
ADAPTERS = "harbor_env.harnesses.adapters"
FORK_TRIES = 3
FORK_PAUSE = 0.2
LINGER = 120.0
"""Seconds an idle worker stays for the next rollout: what it has imported and started warm takes seconds to come by."""
RECYCLED_AFTER = 100
"""Rollouts, after which a worker is replaced: whatever a harness's adapter leaks does not add up."""

Watch = Callable[[At], None]


@dataclass(slots=True)
class Worker:
    """One process and the server's end of its socket. `rollouts` it has begun; `secrets` are those of the last.

    `idle_since` is a moment of the monotonic clock.
    """

    frames: Frames
    pid: int = 0
    rollouts: int = 0
    idle_since: float = 0.0
    secrets: tuple[str, ...] = ()

    async def kill(self) -> None:
        """End the process; its sandbox's keeper sees that and takes the sandbox down.

        One that closed its socket has ended, and its id may be another process's by now: that is left alone.
        """
        if not self.frames.gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        await self.frames.close()


class Pool:
    """At most `limit` rollouts at a time, each in a process of its own.

    Processes wait for the next rollout: `idle` of them for ever, others `linger` seconds. What workers print goes to
    the file `log`. The fork servers of warm starts are this process's, and lent to all of them.
    """

    def __init__(
        self,
        log: Path,
        *,
        limit: int,
        idle: int = 4,
        linger: float = LINGER,
        silence: float = SILENCE,
        grace: float = GRACE,
    ) -> None:
        self._log = log
        self._limit = limit
        self._keep_idle = idle
        self.linger = linger
        self.silence = silence
        self.grace = grace
        self._waiting: list[Worker] = []
        self._nursery: asyncio.subprocess.Process | None = None
        self._ask: socket.socket | None = None
        self._lenders: list[Lender] = []
        self._starting = asyncio.Lock()
        self.busy = 0

    @property
    def full(self) -> bool:
        return self.busy >= self._limit

    async def start(self) -> None:
        """Start the process that forks workers; it imports Harbor while the first rollout is still to come."""
        async with self._starting:
            if self._nursery is None or self._nursery.returncode is not None:
                await self._start_nursery()

    async def close(self) -> None:
        """End idle workers, the nursery and fork servers. Rollouts that run must have been cancelled."""
        for worker in self._waiting:
            await worker.frames.close()
        self._waiting.clear()
        if self._ask is not None:
            self._ask.close()
        if self._nursery is not None:
            with contextlib.suppress(ProcessLookupError):
                self._nursery.terminate()
            await self._nursery.wait()
        for lender in self._lenders:
            lender.close()
        await end_fork_servers()

    async def run(self, order: Run, watch: Watch, *, within: float) -> dict[str, Any]:
        """The fields of the rollout's `HarborResult`; never raises but CancelledError, once the rollout is over.

        `within` is the deadline in seconds from now; a rollout that misses it, a worker that dies and one that hangs
        are failures of the sandbox: they say nothing about the policy.
        """
        began = time.monotonic()
        self.busy += 1
        worker: Worker | None = None
        try:
            worker = await self._begin(order, within)
            ended = await self._follow(worker, watch, began + within)
            self._give_back(worker)
            return ended.result
        except _Overdue as late:
            sentence = f"{late} It {await self._cancel(order, worker)}."
            return await _without_result(order, worker, sentence, began)
        except (EOFError, OSError, TimeoutError, SandboxError) as error:
            if worker is not None:
                await worker.frames.close()
            sentence = str(error) if isinstance(error, SandboxError) else "The rollout's process died without a result."
            return await _without_result(order, worker, sentence, began)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._cancel(order, worker)))
            raise
        finally:
            self.busy -= 1

    async def _begin(self, order: Run, within: float) -> Worker:
        """A worker that has taken the order: one that died while it was idle has not, and another gets it."""
        while True:
            worker = await self._take(order.spec.harness, within)
            worker.rollouts, worker.secrets = worker.rollouts + 1, ()
            worker.frames.write(order)
            try:
                async with asyncio.timeout(self.silence):
                    await worker.frames.read()
                return worker
            except EOFError:
                await worker.frames.close()
                if worker.rollouts == 1:
                    raise
            except BaseException:
                await worker.kill()
                raise

    async def _follow(self, worker: Worker, watch: Watch, deadline: float) -> Ended:
        while True:
            left = deadline - time.monotonic()
            try:
                async with asyncio.timeout(min(left, self.silence)):
                    message = await worker.frames.read()
            except TimeoutError:
                if left <= self.silence:
                    raise _Overdue("The rollout did not end within its time-out.") from None
                raise _Overdue(f"The rollout's process hung for {self.silence:.0f} s.") from None
            if isinstance(message, Ended):
                return message
            if isinstance(message, At):
                worker.secrets = message.secrets
                watch(message)

    async def _cancel(self, order: Run, worker: Worker | None) -> str:
        """Ask the worker to end its rollout, then make it; says which it was."""
        if worker is None:  # but one that was ended as it took the order may have
            await asyncio.to_thread(clear, order.spec)
            return "had not begun"
        worker.frames.write(Cancel())
        try:
            async with asyncio.timeout(self.grace):
                while not isinstance(await worker.frames.read(), Ended):
                    pass
        except (TimeoutError, EOFError):
            await worker.kill()
            await asyncio.to_thread(clear, order.spec)
            return "had to be killed"
        self._give_back(worker)
        return "was ended"

    def _give_back(self, worker: Worker) -> None:
        if worker.rollouts >= RECYCLED_AFTER:
            self._end(worker)
            return
        worker.idle_since = time.monotonic()
        self._waiting.append(worker)
        if len(self._waiting) > self._keep_idle:
            asyncio.get_running_loop().call_later(self.linger, self._thin_out)

    def _thin_out(self) -> None:
        """End workers that have waited long enough; the one that waits longest is first."""
        due = time.monotonic() - self.linger
        while len(self._waiting) > self._keep_idle and self._waiting[0].idle_since <= due:
            self._end(self._waiting.pop(0))

    def _end(self, worker: Worker) -> None:
        closing = asyncio.ensure_future(worker.frames.close())
        closing.add_done_callback(lambda done: done.exception())

    async def _take(self, harness: str, within: float) -> Worker:
        while self._waiting:
            worker = self._waiting.pop()
            if not worker.frames.gone:
                return worker
            await worker.frames.close()
        try:
            async with asyncio.timeout(within):
                return await self._new(adapter_module(harness))
        except TimeoutError:
            raise _Overdue("The rollout did not begin within its time-out.") from None

    async def _new(self, module: str) -> Worker:
        for _ in range(FORK_TRIES):
            await self.start()
            with contextlib.suppress(EOFError, OSError):  # the nursery died: it is started again
                return await self._fork(module)
            await asyncio.sleep(FORK_PAUSE)
        raise SandboxError(f"No process for the rollout could be started; see {self._log}.")

    async def _fork(self, module: str) -> Worker:
        """A new worker that has imported `module`, once it has answered. EOFError, OSError: the nursery is gone."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                if self._ask is not None:
                    socket.send_fds(self._ask, [module.encode()], [theirs.fileno()])
            frames = await Frames.over(ours)
        except BaseException:
            ours.close()
            raise
        try:
            async with asyncio.timeout(READY_WITHIN):
                message = await frames.read()
        except TimeoutError:
            await frames.close()
            raise EOFError from None
        except BaseException:
            await frames.close()
            raise
        return Worker(frames, message.pid if isinstance(message, Alive) else 0)

    async def _start_nursery(self) -> None:
        if self._ask is not None:
            self._ask.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._ask = ours  # at once: whoever is cancelled while the process starts leaves nothing open
        lending, asking = asking_pair()
        self._lenders = [lender for lender in self._lenders if not lender.closed]  # one per nursery that has workers
        self._lenders.append(Lender(lending, find_fork_server))
        with theirs, asking, self._log.open("ab") as log:
            given = theirs.fileno(), asking.fileno()
            command = f"from harbor_env.server.nursery import main; main{given}"
            self._nursery = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=given,
                start_new_session=True,
            )


def adapter_module(harness: str) -> str:
    """The module of this package with the harness's adapter; of a harness from elsewhere, the one with most of them.

    A module of somebody else's is imported in a worker alone: the nursery must not start threads.
    """
    known = HARNESSES.get(harness.partition("@")[0], "")
    agent = find(harness).agent if known else ""
    return agent.partition(":")[0] if agent.startswith("harbor_env.") else ADAPTERS


async def _without_result(order: Run, worker: Worker | None, sentence: str, began: float) -> dict[str, Any]:
    """A failure of the sandbox, with the last that was printed in it; then nothing of the rollout is left."""
    spec = order.spec
    await asyncio.to_thread(last_words, spec, worker.secrets if worker else ())
    result = answer(failed(spec, "sandbox", sentence, time.monotonic() - began), spec.out)
    await asyncio.to_thread(clear, spec)
    return result


class _Overdue(Exception):
    """A rollout that did not end in time, or a worker that gave no sign of life."""
