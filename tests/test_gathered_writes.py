from __future__ import annotations

import asyncio

from harbor_env.gateway.gathered_writes import GatheredWrites


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


async def test_what_is_written_in_one_pass_is_sent_at_once_and_in_order() -> None:
    below = FakeTransport()
    transport = GatheredWrites(below, asyncio.get_running_loop())
    transport.write(b"head ")
    transport.write(b"body")
    assert below.sent == []
    await asyncio.sleep(0)
    transport.write(b"next")
    await asyncio.sleep(0)
    assert below.sent == [b"head body", b"next"]


async def test_closing_sends_what_waits_and_nothing_afterwards() -> None:
    below = FakeTransport()
    transport = GatheredWrites(below, asyncio.get_running_loop())
    transport.write(b"last")
    transport.close()
    assert (below.sent, below.closed) == ([b"last"], True)
    transport.write(b"too late")
    await asyncio.sleep(0)
    assert below.sent == [b"last"]
