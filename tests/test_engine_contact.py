"""A dead engine is told before a batch starts, or waited for; what no waiting mends is not waited for."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from harbor_env.engine_contact import check_listening, reached
from harbor_env.errors import EngineError, UsageError
from harbor_env.rollout import GatewayAddress
from harbor_env.serving_gateway import EngineFlags
from tests.serving import FakeEngine, serving

DOWN = EngineError("engine_down", "the engine at http://h:1 is down: connection refused")
LOADING = EngineError("engine_error", "http://h:1/v1/models answered 503: Loading model")
WRONG_MODEL = EngineError("engine_error", "the engine serves a, b; not c")


async def test_an_engine_that_answers_is_graded_and_leaves_no_session(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        known = await reached(EngineFlags(), GatewayAddress(served.url), print)
        assert (known.level, known.model, known.window) == ("tokens", "fake-model", 10_000)
        assert list(served.gateway.store.sessions()) == []


@pytest.mark.parametrize("down", [DOWN, LOADING, WRONG_MODEL])
async def test_an_engine_that_cannot_be_used_is_refused_with_its_own_words(tmp_path: Path, down: EngineError) -> None:
    async with serving(tmp_path, FakeEngine(down=down)) as served:
        with pytest.raises(UsageError, match="--llm-url") as refused:
            await reached(EngineFlags(), GatewayAddress(served.url), print)
    assert down.message in str(refused.value)


@pytest.mark.parametrize("down", [DOWN, LOADING])
async def test_an_engine_that_is_not_up_yet_is_waited_for(tmp_path: Path, down: EngineError) -> None:
    engine, said = FakeEngine(down=down), list[str]()

    def heard(text: str) -> None:
        said.append(text)
        engine.down = None

    async with serving(tmp_path, engine) as served:
        known = await reached(EngineFlags(), GatewayAddress(served.url), heard, patience=60, poll=0)
    assert known.level == "tokens"
    [line] = said
    assert line.startswith("Waiting up to")
    assert down.message in line


async def test_a_model_the_engine_does_not_serve_is_not_waited_for(tmp_path: Path) -> None:
    async with serving(tmp_path, FakeEngine(down=WRONG_MODEL)) as served:
        with pytest.raises(UsageError, match="cannot be used"):
            await reached(EngineFlags(), GatewayAddress(served.url), pytest.fail, patience=60)


async def test_an_address_where_nothing_listens_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        await check_listening(url)
    with pytest.raises(UsageError, match=r"nothing listens at .* --wait-for-engine"):
        await check_listening(url)
