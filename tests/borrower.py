"""A process that borrows its fork server: `python -m tests.borrower DESCRIPTOR FOLDER`, FOLDER with the fake harness.

For each line on its stdin it starts a sandbox and says, as JSON, where that is and what the harness says there; then a
command of the harness waits in it. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from harbor_env.sandboxes.warm import borrow_from, end_fork_servers, find_fork_server
from tests.sandbox_world import bash
from tests.warm_world import served, tell, wanted


async def main(folder: Path) -> None:
    async with AsyncExitStack() as sandboxes:
        while await asyncio.to_thread(sys.stdin.readline):
            line = await find_fork_server(wanted(folder))
            box = await sandboxes.enter_async_context(served(line, folder))
            told = await tell(box)
            await bash(box, "tiny wait >/tmp/said & until grep -q waiting /tmp/said; do :; done")
            print(json.dumps({"folder": str(box.folder), **told}), flush=True)
    await end_fork_servers()


if __name__ == "__main__":
    borrow_from(socket.socket(fileno=int(sys.argv[1])))
    asyncio.run(main(Path(sys.argv[2])))
