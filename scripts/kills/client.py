"""A client that a test can kill: rollouts through `HarborSessionFactory`, one after the other in each of its threads.

    python -m kills.client URL HARNESS THREADS TIMEOUT

Prints one JSON object a line: `{"began": n, "at": t}`, then `{"ended": n, "at": t, "ok", "reward", "kind", "sentence",
"flags"}`; `t` is the machine's monotonic clock. Ends after the rollouts that run when it is sent SIGTERM.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
import time
from typing import Any

from harbor_env.resource_sessions import HarborSessionFactory

PATIENCE = 120.0
"""Seconds to wait for a server that is being started again."""


class Client:
    def __init__(self, url: str, harness: str, timeout: float) -> None:
        self._factory = HarborSessionFactory(url, harness=harness, patience=PATIENCE, timeout=timeout)
        self._numbers = itertools.count()
        self._printing = threading.Lock()
        self.stopping = threading.Event()

    def play(self) -> None:
        while not self.stopping.is_set():
            number = next(self._numbers)
            try:
                session = self._factory.create(None, seed=number)
            except (RuntimeError, ConnectionError) as error:
                self._say(ended=number, kind="refused", sentence=str(error))
                continue
            self._say(began=number)
            try:
                session.wait_for_completion()
            except TimeoutError:
                pass  # the harness ran out of time; the result says so too
            except RuntimeError as error:
                self._say(ended=number, kind="raised", sentence=str(error))
                continue
            result = session.result
            if result is None:
                self._say(ended=number, kind="no result", sentence="")
                continue
            reason = result.reason
            told = {"ok": result.ok, "reward": result.reward, "flags": result.flags}
            told |= {"kind": reason.kind, "sentence": reason.sentence} if reason else {}
            self._say(ended=number, **told)
            session.close()

    def _say(self, **told: Any) -> None:
        with self._printing:
            print(json.dumps({**told, "at": time.monotonic()}), flush=True)


def main() -> None:
    url, harness, threads, timeout = sys.argv[1:]
    client = Client(url, harness, float(timeout))
    signal.signal(signal.SIGTERM, lambda *_: client.stopping.set())
    players = [threading.Thread(target=client.play) for _ in range(int(threads))]
    for player in players:
        player.start()
    for player in players:
        player.join()


if __name__ == "__main__":
    main()
