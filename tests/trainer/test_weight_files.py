"""Whole weights on their way to an engine as a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from aiohttp import web
from safetensors.torch import load_file

from tests.fake_server import serving
from trl_integration.weight_files import WeightFiles

WEIGHT = torch.arange(6.0).reshape(2, 3).T
"""Not contiguous, as a view of a trainer's parameter may be."""


@dataclass
class FakeEngine:
    """A fake vLLM that notes what it was asked and reads the weights it is told of. `answers` are by route."""

    answers: dict[str, web.Response] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    read: list[dict[str, torch.Tensor]] = field(default_factory=list)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/{route}", self._answer)
        async with serving(app) as url:
            yield url

    async def _answer(self, request: web.Request) -> web.Response:
        route = request.match_info["route"]
        self.asked.append(request.path_qs.removeprefix("/"))
        if request.can_read_body:
            self.bodies.append(await request.json())
        if route == "update_weights":
            self.read.append(load_file(self.bodies[-1]["update_info"]["path"]))
        return self.answers.get(route) or web.json_response({"success": True})


def sync(weights: WeightFiles) -> None:
    weights.pause()
    weights.send_weights(iter([("layer.weight", WEIGHT)]))
    weights.resume()


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_each_version_is_read_from_a_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    engine, folder = FakeEngine(), tmp_path / "new/weights"
    async with engine.served() as url:
        weights = WeightFiles(f"{url}/", folder)
        await asyncio.to_thread(weights.init_weight_transfer)
        await asyncio.to_thread(sync, weights)
        await asyncio.to_thread(sync, weights)
    one_sync = ["pause?mode=keep", "start_weight_update", "update_weights"]
    one_sync += ["finish_weight_update", "reset_prefix_cache", "resume"]
    assert engine.asked == ["init_weight_transfer_engine", *one_sync, *one_sync]
    assert [body["weight_version"] for body in engine.bodies if "weight_version" in body] == ["1", "2"]
    assert [torch.equal(read["layer.weight"], WEIGHT) for read in engine.read] == [True, True]
    assert files_in(folder) == []


async def test_versions_are_numbered_as_the_trainer_numbers_them(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with engine.served() as url:
        weights = WeightFiles(url, tmp_path)
        weights.next_version = lambda: 7
        await asyncio.to_thread(sync, weights)
    assert {"weight_version": "7"} in engine.bodies


@pytest.mark.parametrize(
    ("route", "status", "body", "said"),
    [
        ("update_weights", 500, "no such tensor", "refused /update_weights with 500: no such tensor"),
        ("start_weight_update", 404, "Not Found", "VLLM_SERVER_DEV_MODE=1"),
        ("reset_prefix_cache", 200, '{"success": false}', "could not do /reset_prefix_cache"),
    ],
)
async def test_what_the_engine_refuses_is_told_and_leaves_no_file(
    tmp_path: Path, route: str, status: int, body: str, said: str
) -> None:
    kind = "application/json" if body.startswith("{") else "text/plain"
    engine = FakeEngine({route: web.Response(status=status, text=body, content_type=kind)})
    async with engine.served() as url:
        with pytest.raises(RuntimeError, match=said):
            await asyncio.to_thread(sync, WeightFiles(url, tmp_path))
    assert files_in(tmp_path) == []
    assert "resume" not in engine.asked
