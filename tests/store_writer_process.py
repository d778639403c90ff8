"""A gateway process as the store sees it: commits turns to session `s` and prints each one once it is durable.

Run as `python -m tests.store_writer_process DIR NAME COUNT`. Each turn continues the latest turn of any process.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from harbor_env.gateway.store import Store
from tests.turns import make_turn


async def write(directory: Path, name: str, count: int) -> None:
    store = Store.open(directory)
    read_to, known = 0, []
    for index in range(count):
        for seq, turn in store.turns_after("s", read_to):
            known.append(turn.id)
            read_to = seq
        turn_id = f"{name}{index}"
        ids = range(index, index + 50)
        turn = make_turn(turn_id, known[-1] if known else None, ids, ids, facts={"by": name, "index": index})
        committed = await store.commit_turn("s", turn)
        if committed.previous == read_to:
            known.append(turn_id)
            read_to = committed.seq
        print(turn_id, flush=True)
    known += [turn.id for _, turn in store.turns_after("s", read_to)]
    store.close()
    print("known", *known, flush=True)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
