"""What crosses the wire: how large a result is, who is let in, what reaches the gateway, what a client imports."""

from __future__ import annotations

import random
import subprocess
import sys
from array import array
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path

import aiohttp
import orjson
import pytest
import pytest_asyncio
from openenv.cli._validation import validate_multi_mode_deployment
from openenv.core.env_server.serialization import serialize_observation
from openenv.core.env_server.types import WSObservationResponse

from harbor_env.errors import UsageError
from harbor_env.gateway.export import SessionExport, find_format
from harbor_env.gateway.options import Budget
from harbor_env.models import Budgets, HarborAction, HarborObservation, HarborResult
from harbor_env.packing import pack, unpack
from harbor_env.server.settings import ServerConfig, fitting_envs, from_environment
from tests.env_serving import Environments, environments
from tests.tiny_harness import write_task
from tests.turns import long_session
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 4 * 2**20


def test_every_limit_of_a_session_can_be_asked_for_in_a_step() -> None:
    assert set(Budgets.model_fields) == {limit.name for limit in fields(Budget)}


def test_two_hundred_turns_at_sixty_thousand_tokens_stay_under_4_MB_on_the_wire() -> None:
    rng = random.Random(0)
    turns = [  # ids and log probabilities like sampled ones, which compress badly
        replace(
            turn,
            delta_ids=array("i", [rng.randrange(150_000) for _ in turn.delta_ids]),
            sampled=array("i", [rng.randrange(150_000) for _ in turn.sampled]),
            logprobs=array("d", [-5 * rng.random() for _ in turn.sampled]),
        )
        for turn in long_session()
    ]
    trace = find_format("trace").encode(SessionExport("s", turns))
    result = HarborResult(id="r", task="t", harness="h", sandbox="s", ok=True, reward=1.0, trace=pack(trace))
    observation = HarborObservation(done=True, reward=1.0, result=result)
    frame = WSObservationResponse(data=serialize_observation(observation)).model_dump_json().encode()
    assert len(frame) < LIMIT / 2, len(frame)
    back = HarborResult.model_validate(orjson.loads(frame)["data"]["observation"]["result"])
    expanded = back.training_trace()
    assert len(expanded.turns) == 200
    last = expanded.turns[-1]
    assert len(last.prompt_token_ids) + len(last.completion_token_ids) >= 59_000


def test_what_is_no_packed_document_is_refused() -> None:
    assert unpack(pack(b'{"a": 1}')) == {"a": 1}
    for wrong in (pack(b"[1]"), "bm90IHpzdGQ="):
        with pytest.raises(ValueError, match="not a packed"):
            unpack(wrong)


@pytest.mark.parametrize("module", ["harbor_env", "harbor_env.client", "harbor_env.resource_sessions"])
def test_a_client_imports_neither_harbor_nor_torch_nor_gradio_nor_an_engine(module: str) -> None:
    heavy = ("harbor", "torch", "gradio", "pandas", "transformers", "xllamacpp", "harbor_env.gateway.engines")
    program = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_a_server_beyond_loopback_needs_a_key() -> None:
    with pytest.raises(UsageError, match="--admin-key"):
        ServerConfig(host="0.0.0.0").check()
    ServerConfig(host="0.0.0.0", admin_key="k").check()


def test_episodes_are_as_many_as_the_machine_holds() -> None:
    assert fitting_envs(2, 24 * 2**30) == 64
    assert fitting_envs(64, 4 * 2**30) == 13
    assert fitting_envs(1, 2**20) == 1


def test_a_space_finds_its_settings_and_its_own_address_in_the_environment() -> None:
    config = from_environment({"SPACE_HOST": "me-env.hf.space", "OPENENV_HARBOR_DATASET": "bundled,/tasks"})
    assert (config.public_url, config.datasets) == ("https://me-env.hf.space", ("bundled", "/tasks"))


def test_an_action_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="sandbox_kwargs"):
        HarborAction.model_validate({"sandbox_kwargs": {"mounts": ["/"]}})


def test_openenv_finds_the_package_valid() -> None:
    package = ROOT / "envs" / "harbor_env"
    assert validate_multi_mode_deployment(package) == (True, [])
    program = [str(Path(sys.executable).parent / "openenv"), "validate", str(package), "--level", "static"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert "Verdict: PASS" in done.stdout, done.stdout + done.stderr


guarded_server = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environments]:
    folder = tmp_path_factory.mktemp("server")
    write_task(folder / "tasks" / "one")
    async with environments(folder, folder / "tasks", admin_key="secret") as running:
        yield running


@guarded_server
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/info"), ("GET", "/state"), ("POST", "/reset"), ("POST", "/step"), ("GET", "/harbor_env/splits")],
)
async def test_whatever_mints_runs_or_reads_needs_the_admin_key(guarded: Environments, method: str, path: str) -> None:
    async with aiohttp.ClientSession(guarded.url) as http, http.request(method, path, json={}) as response:
        assert response.status == 401
    async with guarded.client(admin_key="secret") as env:
        assert (await env.reset()).observation.task.name == "one"
        assert await env.num_tasks("all") == 1
    with pytest.raises(ConnectionError, match="401"):
        await guarded.client(admin_key="guess").connect()


@guarded_server
async def test_health_is_public_and_rpc_refuses_in_its_own_words(guarded: Environments) -> None:
    async with aiohttp.ClientSession(guarded.url) as http:
        async with http.get("/health") as response:
            assert await response.json() == {"status": "healthy"}
        create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
        async with http.post("/mcp", json=create) as response:
            assert (await response.json())["error"]["message"] == "needs the admin key"


@guarded_server
async def test_a_harness_elsewhere_reaches_the_gateway_below_capture(guarded: Environments) -> None:
    key = await guarded.gateway.key()
    call = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    async with aiohttp.ClientSession(guarded.url) as http:
        headers = {"Authorization": f"Bearer {key}"}
        async with http.post("/capture/v1/chat/completions", json=call, headers=headers) as response:
            assert response.status == 200
            assert (await response.text()).rstrip().endswith("data: [DONE]")
        async with http.post("/capture/v1/chat/completions", json=call) as response:
            assert response.status == 401
    assert (await guarded.gateway.counts(key))["turns"] == 1


@guarded_server
async def test_a_caller_that_hangs_up_on_capture_hangs_up_on_the_engine(guarded: Environments) -> None:
    key = await guarded.gateway.key()
    guarded.engine.gate.clear()
    guarded.engine.arrived.clear()
    aborted = guarded.engine.aborted
    call = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    async with aiohttp.ClientSession(guarded.url, headers={"Authorization": f"Bearer {key}"}) as http:
        with pytest.raises(TimeoutError):
            await http.post("/capture/v1/chat/completions", json=call, timeout=aiohttp.ClientTimeout(total=1.0))
    await until(lambda: guarded.engine.aborted == aborted + 1)
    guarded.engine.gate.set()
    assert (await guarded.gateway.counts(key))["turns"] == 0
