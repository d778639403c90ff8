"""What a command wrote, kept in files so that a child it left behind holds nobody up, and read back within bounds."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[str, Stream], Awaitable[None]]

_POLL_S = 0.1
_CHUNK = 1 << 16


class Output:
    """A pair of files for one command. `limit` is in bytes for each stream; beyond it, the middle is left out."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._limit = limit
        self._files: dict[Stream, IO[bytes]] = {
            "stdout": tempfile.TemporaryFile(dir=folder),  # noqa: SIM115  (closed by __exit__)
            "stderr": tempfile.TemporaryFile(dir=folder),  # noqa: SIM115
        }

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for file in self._files.values():
            file.close()

    def fileno(self, stream: Stream) -> int:
        return self._files[stream].fileno()

    def text(self, stream: Stream) -> str:
        """Head and tail of the stream, decoded leniently."""
        fd = self.fileno(stream)
        size = os.fstat(fd).st_size
        if size <= self._limit:
            return os.pread(fd, size, 0).decode(errors="replace")
        half = self._limit // 2
        head, tail = os.pread(fd, half, 0), os.pread(fd, half, size - half)
        left_out = f"\n[... {size - 2 * half} bytes left out ...]\n"
        return head.decode(errors="replace") + left_out + tail.decode(errors="replace")

    async def follow(self, emit: OnOutput) -> None:
        """Pass on what is written, as it is written, until cancelled; `drain` passes on the rest."""
        self._offsets: dict[Stream, int] = dict.fromkeys(self._files, 0)
        while True:
            await self.drain(emit)
            await asyncio.sleep(_POLL_S)

    async def drain(self, emit: OnOutput) -> None:
        for stream in self._files:
            while chunk := os.pread(self.fileno(stream), _CHUNK, self._offsets[stream]):
                self._offsets[stream] += len(chunk)
                await emit(chunk.decode(errors="replace"), stream)
