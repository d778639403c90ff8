"""The engine script says to vLLM what gateway and trainer need, and what an earlier trainer left there is cleared."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from tests.fake_server import serving
from tests.slurm_jobs import Jobs, appears, slurm_jobs
from tests.waiting import until
from trl_integration.engine_state import load, renew


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with slurm_jobs(tmp_path) as started:
        yield started


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, {"--weight-transfer-config", '{"backend":"nccl"}', "--enable-scale-out", "processed_logprobs"}),
        ({"LORA_RANK": "16"}, {"--enable-lora", "--max-lora-rank", "16"}),
        ({"ENGINE_ARGS": "--tensor-parallel-size 8"}, {"--tensor-parallel-size", "8"}),
    ],
)
def test_vllm_is_started_as_gateway_and_trainer_want_it(jobs: Jobs, variables: dict[str, str], words: set[str]) -> None:
    status, _ = jobs.finish("engine.sbatch", ENGINE_COMMAND="", MODEL="some/model", PORT="1234", **variables)
    told = jobs.asked.with_name("asked.0").read_text().split("\t")
    assert status == 1  # an engine that ends by itself is no success
    assert told[:2] == ["serve", "some/model"]
    assert {"policy", "127.0.0.1", "1234", *words} <= set(told)
    assert ("--enable-lora" in told) != ("--weight-transfer-config" in told)


def test_on_several_nodes_only_the_first_rank_of_vllm_listens(jobs: Jobs) -> None:
    jobs.finish("engine.sbatch", ENGINE_COMMAND="", SLURM_NNODES="2")
    first, second = (jobs.asked.with_name(f"asked.{rank}").read_text().split("\t") for rank in (0, 1))
    place = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--headless"]
    assert [word for word in second if word not in first] == ["1", "--headless"]
    assert second[second.index("--nnodes") :][:7] == place


async def test_an_engine_a_trainer_left_in_the_middle_is_freed_for_the_next() -> None:
    engine = FakeAdapters(paused=True, adapters={"trl-policy-v3": "", "trl-policy-v4": "", "mine": ""})
    async with engine.serving() as url:
        await asyncio.to_thread(renew, url)
        assert (engine.paused, sorted(engine.adapters)) == (False, ["mine"])
        await asyncio.to_thread(load, url, "evaluate-checkpoint-9", "/runs/checkpoint-9")
        await asyncio.to_thread(load, url, "evaluate-checkpoint-9", "/runs/checkpoint-9")
        assert engine.adapters["evaluate-checkpoint-9"] == "/runs/checkpoint-9"
        engine.takes_adapters = False
        with pytest.raises(RuntimeError, match="start the engine with LORA_RANK"):
            await asyncio.to_thread(load, url, "other", "/runs/other")


@dataclass
class FakeAdapters:
    """A fake vLLM of which only pausing and adapters are there; one loaded twice is an error, as in the real one."""

    paused: bool = False
    takes_adapters: bool = True
    adapters: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        async with serving(app) as url:
            yield url

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.method == "POST" else {}
        match request.path:
            case "/is_paused":
                return web.json_response({"is_paused": self.paused})
            case "/resume":
                self.paused = False
                return web.json_response({"status": "resumed"})
            case "/v1/models":
                return web.json_response({"data": [{"id": name} for name in ("policy", *self.adapters)]})
            case "/v1/unload_lora_adapter":
                del self.adapters[body["lora_name"]]
                return web.Response(text="Success")
            case "/v1/load_lora_adapter" if self.takes_adapters:
                if body["lora_name"] in self.adapters:
                    return web.Response(status=400)
                self.adapters[body["lora_name"]] = body["lora_path"]
                return web.Response(text="Success")
        return web.Response(status=404)


async def test_every_node_runs_a_rank_of_the_engine_and_all_end_together(jobs: Jobs) -> None:
    engine = jobs.start("engine.sbatch", SLURM_NNODES="2")
    for sign in (jobs.run / "engine.url", *(jobs.asked.with_name(f"asked.up.{rank}") for rank in (0, 1))):
        await until(appears(sign, engine))
    status, printed = jobs.end_of(engine, signal.SIGTERM)
    assert (status, {"rank 0 is up", "rank 1 is up"} <= set(printed.splitlines())) == (0, True)
    assert jobs.left() == ([], [])
