"""How sandboxes elsewhere reach the gateway: an address that was proved to lead here, or a reason why there is none."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import psutil
import pytest
from starlette.responses import PlainTextResponse

from harbor_env.errors import UsageError
from harbor_env.exposing import Door, find_exposer
from harbor_env.exposing.tunnels import CLOUDFLARED, tunnel
from harbor_env.gateway.types import Message, ToolCall
from harbor_env.models import HarborAction
from harbor_env.sandboxes import LOCAL
from harbor_env.server.app import serve
from harbor_env.server.capture_proxy import BODY_LIMIT
from harbor_env.server.listening import beside, bind, url_of
from harbor_env.server.outside import PROOF, Outside
from harbor_env.server.settings import ServerConfig
from harbor_env.serving_gateway import EngineFlags
from tests.env_serving import TINY, environments
from tests.fake_tunnel import DATA, fake_program, relay
from tests.serving import serving
from tests.tiny_harness import write_answer, write_task

ELSEWHERE = HarborAction(harness=TINY, sandbox=LOCAL)
"""The local sandbox by its class: nobody knows that it is on this machine, so it is given the exposed address."""


def door(folder: Path, **fields: str) -> Door:
    return Door(fields.pop("host", "127.0.0.1"), 8123, folder, **fields)


async def opened(name: str, at: Door) -> str:
    async with find_exposer(name)(at) as url:
        return url


async def test_direct_is_the_owner_s_address_or_the_one_the_port_listens_at(tmp_path: Path) -> None:
    assert await opened("direct", door(tmp_path, public_url="https://a.example/x/")) == "https://a.example/x"
    assert await opened("direct", door(tmp_path, host="10.1.2.3")) == "http://10.1.2.3:8123"
    assert await opened("direct", door(tmp_path, host="fd00::1")) == "http://[fd00::1]:8123"


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("direct", {}, "give --public-url"),
        ("direct", {"host": "0.0.0.0"}, "give --public-url"),
        ("gradio", {"public_url": "https://a.example"}, "leave --public-url out"),
        ("cloudflared", {}, "There is no cloudflared on PATH: install it"),
        ("pigeon", {}, "Choose one of: direct, gradio, cloudflared"),
        ("tests.nowhere:way", {}, "cannot be imported"),
    ],
)
def test_a_way_out_that_cannot_be_had_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, str], sentence: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=sentence):
        find_exposer(name)(door(tmp_path, **fields))


async def test_cloudflared_says_its_address_in_a_box_and_ends_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(
        tmp_path / "bin",
        "cloudflared",
        f'echo "$@" > asked; echo $$ > pid; cat {DATA}/cloudflared.txt >&2; exec sleep 600',
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    async with find_exposer("cloudflared")(door(tmp_path / "scratch")) as url:
        assert url == "https://brave-tokens-walk-home.trycloudflare.com"
        assert (tmp_path / "scratch" / "asked").read_text() == "tunnel --no-autoupdate --url http://127.0.0.1:8123\n"
        running = psutil.Process(int((tmp_path / "scratch" / "pid").read_text()))
        assert running.is_running()
    assert not running.is_running()


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (f"cat {DATA}/cloudflared_refused.txt >&2; exit 1", "ended without an address. .* no such host"),
        ("exec sleep 600", "gave no address within 0 s. It said nothing."),
    ],
)
async def test_a_tunnel_without_an_address_is_told_in_its_own_last_words(
    tmp_path: Path, script: str, sentence: str
) -> None:
    program = fake_program(tmp_path / "bin", "cloudflared", script)
    within = 30 if "refused" in script else 0.2
    with pytest.raises(UsageError, match=sentence):
        async with tunnel("cloudflared", [str(program)], CLOUDFLARED, tmp_path, within=within):
            pass


def test_a_tunnel_ends_with_the_program_that_opened_it_however_that_ends(tmp_path: Path) -> None:
    program = fake_program(tmp_path, "tunnel", f"echo $$ > pid; cat {DATA}/cloudflared.txt; exec sleep 600")
    script = f"""
import asyncio, os, pathlib, signal
from harbor_env.exposing.tunnels import CLOUDFLARED, tunnel
async def main():
    async with tunnel("it", [{str(program)!r}], CLOUDFLARED, pathlib.Path({str(tmp_path)!r})):
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    assert not psutil.pid_exists(pid)


async def test_gradio_s_tunnel_is_held_by_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{DATA}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert await opened("gradio", door(tmp_path)) == "https://0123456789abcdef.gradio.live"
    monkeypatch.setenv("FAKE_GRADIO_DOWN", "1")
    with pytest.raises(UsageError, match=r"Could not get share link .* needs api\.gradio\.app"):
        await opened("gradio", door(tmp_path))


async def test_an_address_is_trusted_only_for_the_answer_nobody_else_can_give(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "one")
    async with environments(tmp_path, tmp_path / "tasks") as served:
        outside = served.backend.outside
        outside.url = f"{served.url}/capture"
        assert await outside.reached() == f"{served.url}/capture"
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{outside.url}/health?nonce=n") as response:
                assert response.headers[PROOF] == outside.proof("n")
            async with http.get(f"{outside.url}/health?nonce={'n' * 201}") as response:
                assert (response.status, PROOF in response.headers) == (200, False)
        stranger = Outside(f"{served.url}/capture", within=0.5)
        with pytest.raises(UsageError, match="another server answers"):
            await stranger.reached()


async def test_an_address_that_does_not_answer_is_asked_again_by_the_next_rollout() -> None:
    app = PlainTextResponse("ok")
    with bind("127.0.0.1", 0) as bound:
        outside = Outside(url_of(bound), within=0.3)
        failures = await asyncio.gather(outside.reached(), outside.reached(), return_exceptions=True)
        assert [type(failure) for failure in failures] == [UsageError, UsageError]
        assert failures[0] is failures[1], "one look served both"
        async with beside(app, bound):
            with pytest.raises(UsageError, match="another server answers"):
                await outside.reached()


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    write_task(tmp_path / "tasks" / "one")
    return tmp_path / "tasks"


async def test_a_sandbox_elsewhere_works_through_the_exposed_gateway_and_never_sees_the_admin_key(
    tmp_path: Path, tasks: Path
) -> None:
    async with environments(tmp_path, tasks) as served:
        host, port = served.url.removeprefix("http://").split(":")
        writes = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
        served.engine.answers[:] = [writes, Message("assistant", "Done.")]
        async with relay(Door(host, int(port), tmp_path)) as public:
            served.backend.outside.url = f"{public}/capture"
            async with served.client() as env:
                await env.reset()
                step = await env.step(ELSEWHERE)
    result = step.observation.result
    assert result is not None
    assert (result.ok, result.reward) == (True, 1.0), result
    assert f"at {public}/capture" in result.log_tails["agent"]


async def test_a_rollout_elsewhere_ends_with_the_reason_why_it_cannot_be_reached(tmp_path: Path, tasks: Path) -> None:
    async with environments(tmp_path, tasks) as served:
        with bind("127.0.0.1", 0) as nobody:
            served.backend.outside = Outside(url_of(nobody), within=0.2)
            async with served.client() as env:
                await env.reset()
                step = await env.step(ELSEWHERE)
    result = step.observation.result
    assert result is not None
    assert (step.reward, result.ok, result.reason.kind) == (None, False, "sandbox")
    assert "Sandboxes cannot reach this server" in result.reason.sentence


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"expose": "gradio"}, "--admin-key"),
        ({"public_url": "https://a.example"}, "--gateway-port"),
        ({"expose": "pigeon", "admin_key": "k"}, "no way 'pigeon'"),
        ({"expose": "gradio", "gateway_port": 0, "engine": EngineFlags(gateway="http://x")}, "--gateway-admin-key"),
        ({"gateway_port": 0, "gateway_host": "0.0.0.0", "engine": EngineFlags(gateway="http://x")}, "admin key"),
    ],
)
def test_what_would_expose_more_than_the_gateway_is_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        ServerConfig(**settings).check()  # type: ignore[arg-type]
    ServerConfig(expose="gradio", gateway_port=0).check()


async def test_two_ports_keep_the_environment_off_the_exposed_one(
    tmp_path: Path, tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(tmp_path / "gateway", admin_key="k") as gateway, aiohttp.ClientSession() as http:
        config = ServerConfig(
            engine=EngineFlags(gateway=gateway.url, admin_key="k"),
            datasets=(str(tasks),),
            data=tmp_path / "data",
            port=0,
            gateway_port=0,
            expose="tests.fake_tunnel:relay",
        )
        running = asyncio.create_task(serve(config))
        shown = ""
        while "}" not in shown and not running.done():
            await asyncio.sleep(0.02)
            shown += capsys.readouterr().out
        said = json.loads(shown)
        for path, status in [
            ("/health", 200),
            ("/info", 404),
            ("/state", 404),
            ("/metrics", 401),
            ("/sessions/x", 401),
        ]:
            for url in (said["gateway"], said["public"]):
                async with http.get(f"{url}{path}") as response:
                    assert response.status == status, (url, path)
        async with http.get(f"{said['url']}/capture/health") as response:
            assert response.status == 404
        async with http.post(f"{said['public']}/v1/messages", data=io.BytesIO(b"x" * (BODY_LIMIT + 1))) as response:
            assert response.status == 413
        running.cancel()
        await asyncio.wait({running})
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(f"{said['public']}/health")


def test_an_address_that_is_taken_is_said_in_one_sentence() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(UsageError, match="cannot listen on"):
            bind("127.0.0.1", taken.getsockname()[1])
