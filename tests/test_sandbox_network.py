"""What a sandbox can reach: the gateway, if it may, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harbor_env.errors import SandboxError, UsageError
from harbor_env.sandboxes.network import Address, Forwarder, check_allowlist, parse_address
from harbor_env.sandboxes.sandbox import Sandbox
from tests.sandbox_world import bash, environment, make_environment, needs_sandbox, sandbox

CONNECT = "exec 3<>/dev/tcp/{host}/{port} && echo reached"


@asynccontextmanager
async def _server(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[int]:
    serving: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(writer)
        await serve(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in serving:
            writer.transport.abort()
        await asyncio.wait_for(server.wait_closed(), 10)


async def _echo_upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only once the sender has ended its half."""
    try:
        writer.write((await reader.read()).upper())
        await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def _with_gateway(port: int) -> AsyncIterator[Sandbox]:
    forwarder = Forwarder(Address("127.0.0.1", port))
    async with sandbox() as box:
        await forwarder.open(box.control)
        try:
            yield box
        finally:
            await forwarder.close()


ASK = """python3 - <<'EOF'
import socket
s = socket.create_connection(("127.0.0.1", {port}))
s.sendall(b"hello" * {times})
s.shutdown(socket.SHUT_WR)
total = b""
while chunk := s.recv(65536):
    total += chunk
import hashlib
print(len(total), hashlib.sha256(total).hexdigest())
EOF"""


@needs_sandbox
async def test_the_gateway_answers_at_its_own_address_and_each_half_closes_alone() -> None:
    async with _server(_echo_upper) as port, _with_gateway(port) as box:
        done = await bash(box, ASK.format(port=port, times=1))
        assert done.stdout == f"5 {hashlib.sha256(b'HELLO').hexdigest()}\n"


@needs_sandbox
async def test_many_large_exchanges_at_once_arrive_whole() -> None:
    async with _server(_echo_upper) as port, _with_gateway(port) as box:
        script = ASK.format(port=port, times=400_000)
        answers = await asyncio.gather(*(bash(box, script) for _ in range(4)))
    assert {done.stdout for done in answers} == {f"2000000 {hashlib.sha256(b'HELLO' * 400_000).hexdigest()}\n"}


@needs_sandbox
async def test_a_slow_reader_holds_back_the_gateway_s_sender() -> None:
    sent = 0
    stalled = asyncio.Event()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while True:
                writer.write(b"x" * 65536)
                await asyncio.wait_for(writer.drain(), 0.5)
                sent += 65536
        except TimeoutError:
            stalled.set()
        writer.transport.abort()

    async with _server(pour) as port, _with_gateway(port) as box:
        reading = asyncio.create_task(bash(box, f"exec 3<>/dev/tcp/127.0.0.1/{port}; sleep 300"))
        await asyncio.wait_for(stalled.wait(), 20)
        reading.cancel()
    assert sent < 32 << 20


@needs_sandbox
async def test_a_gateway_that_is_down_resets_the_connection() -> None:
    async with _server(_echo_upper) as port:
        pass
    async with _with_gateway(port) as box:
        done = await bash(box, f"exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3")
    assert (done.stdout, done.code) == ("", 1)


@needs_sandbox
async def test_a_sandbox_cannot_exhaust_this_process_s_descriptors() -> None:
    async with _server(_echo_upper) as port, sandbox() as box:
        forwarder = Forwarder(Address("127.0.0.1", port), limit=2)
        await forwarder.open(box.control)
        held = f"exec 3<>/dev/tcp/127.0.0.1/{port} 4<>/dev/tcp/127.0.0.1/{port}; sleep 0.2; "
        done = await bash(box, held + ASK.format(port=port, times=1))
        # Which call of the client meets the reset depends on how soon it comes.
        assert (done.stdout, done.code) == ("", 1)
        assert "OSError" in done.stderr or "ConnectionResetError" in done.stderr
        assert (await bash(box, ASK.format(port=port, times=1))).code == 0
        await forwarder.close()


@needs_sandbox
async def test_nothing_else_of_the_host_or_beyond_is_reachable() -> None:
    async with _server(_echo_upper) as port, _server(_echo_upper) as other, _with_gateway(port) as box:
        for host, number in (("127.0.0.1", other), ("8.8.8.8", 53), ("10.0.0.1", 80), ("169.254.169.254", 80)):
            done = await bash(box, CONNECT.format(host=host, port=number))
            assert (done.stdout, done.code) == ("", 1), host
        links = await bash(box, "ls /sys/class/net; wc -l < /proc/net/route")
        assert links.stdout.split()[0] == "lo"
        assert links.stdout.split()[-1] in ("0", "1")


@needs_sandbox
async def test_policies_switch_between_phases(tmp_path: Path) -> None:
    from harbor.models.task.config import NetworkMode, NetworkPolicy

    async with _server(_echo_upper) as port:
        ask = ASK.format(port=port, times=1)
        async with environment(tmp_path, gateway=f"http://127.0.0.1:{port}") as env:
            assert (await env.exec(ask)).return_code == 0
            for mode, hosts, answers in (
                (NetworkMode.NO_NETWORK, [], False),
                (NetworkMode.ALLOWLIST, ["127.0.0.1"], True),
                (NetworkMode.NO_NETWORK, [], False),
                (NetworkMode.ALLOWLIST, [], False),
                (NetworkMode.PUBLIC, [], True),
            ):
                await env.set_network_policy(NetworkPolicy(network_mode=mode, allowed_hosts=hosts))
                assert ((await env.exec(ask)).return_code == 0) is answers, mode


async def test_an_allowlist_beyond_the_gateway_is_refused_before_anything_starts(tmp_path: Path) -> None:
    from harbor.models.task.config import NetworkMode, NetworkPolicy

    policy = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["127.0.0.1", "pypi.org"])
    with pytest.raises(SandboxError, match=r"cannot allow pypi\.org: .* only the gateway at 127\.0\.0\.1"):
        make_environment(tmp_path, gateway="127.0.0.1:80", network_policy=policy)
    with pytest.raises(SandboxError, match="no gateway was given"):
        check_allowlist(["127.0.0.1"], None)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000)),
        ("http://127.0.0.1:8000/v1", Address("127.0.0.1", 8000)),
        ("https://gateway.example", Address("gateway.example", 443)),
    ],
)
def test_a_gateway_s_address_is_read_from_a_url_or_host_and_port(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["localhost", "http://[::1]:80", "127.0.0.1:no", ""])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


@needs_sandbox
async def test_a_gateway_on_another_machine_answers_at_that_machine_s_address() -> None:
    async with sandbox() as box:
        listener = await box.control.listen("10.9.8.7", 8123)
        done = await bash(box, CONNECT.format(host="10.9.8.7", port=8123))
        listener.close()
    assert done.stdout == "reached\n"
