"""Who may ask for warm starts, and what a rollout says that should have had one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from harbor_env.cli.order import Order
from harbor_env.errors import UsageError
from harbor_env.gateway.types import Message, ToolCall
from harbor_env.harnesses import Warm, find
from harbor_env.harnesses.baking import warm_start
from harbor_env.models import HarborAction
from harbor_env.rollout import GatewayAddress, RolloutSpec, run_rollout
from harbor_env.sandboxes.warm import end_fork_servers
from harbor_env.server.order import make_order
from harbor_env.server.settings import ServerConfig
from harbor_env.serving_gateway import EngineFlags
from harbor_env.tasks import Task
from tests.sandbox_world import needs_sandbox
from tests.serving import serving
from tests.tiny_harness import TINY, write_answer, write_task

COLD_TINY = replace(TINY, warm=Warm(("there_is_no_such_module",), "tiny", "tiny:main"))
ANSWERS = [Message("assistant", tool_calls=(ToolCall("", "bash", write_answer()),)), Message("assistant", "Done.")]


@pytest.fixture
async def spec(tmp_path: Path) -> AsyncIterator[RolloutSpec]:
    async with serving(tmp_path / "data") as running:
        running.engine.answers[:] = ANSWERS
        gateway = GatewayAddress(running.url, model="m", level="tokens")
        task = write_task(tmp_path / "write-42")
        yield RolloutSpec("r1", task, "tests.test_warm_rollouts:COLD_TINY", gateway, tmp_path / "out")
    await end_fork_servers()


@needs_sandbox
async def test_a_harness_that_cannot_be_forked_starts_cold_with_a_finding(
    spec: RolloutSpec, caplog: pytest.LogCaptureFixture
) -> None:
    result = await run_rollout(replace(spec, warm=True))
    assert (result.ok, result.reward, result.flags) == (True, 1.0, ()), result
    assert result.findings["cold_start"] == 1
    assert "rollout r1: tiny cannot be started warm: " in caplog.text


@needs_sandbox
async def test_a_cold_start_that_was_wanted_is_no_finding(spec: RolloutSpec) -> None:
    result = await run_rollout(spec)
    assert (result.ok, "cold_start" in result.findings) == (True, False), result


def test_a_harness_tells_how_it_is_forked_or_nothing() -> None:
    warm = warm_start(find("mini-swe-agent"))["warm"]
    assert warm["cold"] == "/opt/harness/mini-swe-agent/python/bin/mini-swe-agent"
    assert warm["env"]["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert warm_start(find("pi")) == {}


def test_warm_starts_are_the_local_sandbox_s() -> None:
    order = Order(EngineFlags(), ("mini-swe-agent",), Path("/out"), sandbox="docker", warm=True)
    with pytest.raises(UsageError, match="--warm is for the local sandbox; leave it out for docker"):
        order.check()


@pytest.mark.parametrize(("server", "action"), [(True, False), (False, True), (False, False)])
def test_the_server_or_an_action_asks_for_warm_starts(server: bool, action: bool) -> None:
    run = make_order(ServerConfig(warm=server), HarborAction(warm=action), Task("t", Path("/t"), ""), "r1")
    assert run.spec.warm == (server or action)
