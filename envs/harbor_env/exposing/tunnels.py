"""Tunnels: programs that hold a connection to a relay and print the address at which it lets callers in."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from harbor_env.errors import UsageError
from harbor_env.gateway.process import die_with_parent, stop

log = logging.getLogger(__name__)

OPENED_WITHIN = 90.0
"""Seconds until a tunnel has said its address; gradio's fetches its program first."""
STOP_WITHIN = 5.0
WORDS_KEPT = 5

CLOUDFLARED = re.compile(r"https://(?!api\.)[a-z0-9-]+\.trycloudflare\.com")
ANY_URL = re.compile(r"^(https?://\S+)$")


def cloudflared(host: str, port: int, scratch: Path) -> AbstractAsyncContextManager[str]:
    """A quick tunnel of Cloudflare's, through the program of that name; it needs no account."""
    program = shutil.which("cloudflared")
    if program is None:
        raise UsageError(
            "There is no cloudflared on PATH: install it (developers.cloudflare.com, 'cloudflared'), or use --expose"
            " gradio, or --public-url with an address of your own."
        )
    command = [program, "tunnel", "--no-autoupdate", "--url", f"http://{_bracketed(host)}:{port}"]
    return tunnel("cloudflared", command, CLOUDFLARED, scratch)


def gradio(host: str, port: int, scratch: Path) -> AbstractAsyncContextManager[str]:
    """A tunnel of gradio's, held by a process of its own: gradio takes seconds to import and hundreds of megabytes."""
    command = [sys.executable, "-m", "harbor_env.exposing.gradio_share", host, str(port)]
    return tunnel("gradio's tunnel", command, ANY_URL, scratch)


@asynccontextmanager
async def tunnel(
    name: str, command: Sequence[str], address: re.Pattern[str], scratch: Path, within: float = OPENED_WITHIN
) -> AsyncIterator[str]:
    """Run `command` in the folder `scratch` for as long as the block lasts; yields the first `address` it prints.

    Raises UsageError with the program's last words where it prints none within `within` seconds.
    """
    await asyncio.to_thread(scratch.mkdir, parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=scratch,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
        limit=2**20,
    )
    words: deque[str] = deque(maxlen=WORDS_KEPT)
    reading: asyncio.Task[None] | None = None
    try:
        url = await _address(name, process, address, words, within)
        reading = asyncio.create_task(_read_on(name, process, words))
        yield url
    finally:
        if reading is not None:
            reading.cancel()
        await stop(process, STOP_WITHIN)


async def _address(
    name: str, process: asyncio.subprocess.Process, address: re.Pattern[str], words: deque[str], within: float
) -> str:
    try:
        async with asyncio.timeout(within):
            while line := await _line(process):
                words.append(line.strip())
                if found := address.search(line.strip()):
                    return found.group(0)
    except TimeoutError:
        raise UsageError(f"{name} gave no address within {within:.0f} s. {_last(words)}") from None
    raise UsageError(f"{name} ended without an address. {_last(words)}")


async def _read_on(name: str, process: asyncio.subprocess.Process, words: deque[str]) -> None:
    """Empty the pipe, without which the program would come to stand still; say so when it ends."""
    while line := await _line(process):
        words.append(line.strip())
    log.error("%s has ended, so sandboxes elsewhere cannot reach this server any more. %s", name, _last(words))


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode(errors="replace")


def _last(words: deque[str]) -> str:
    said = " ".join(word for word in words if word)
    return f"It said: {said}" if said else "It said nothing."


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
