"""Codex under a vendor's name leaves compaction to the server: asked either way, it gets one item to go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harbor_env.gateway.types import Message
from tests.serving import serving

TOOLS = [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]
SAID = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]}
TRIGGER = {"type": "compaction_trigger"}


@pytest.mark.parametrize(("path", "asked"), [("/v1/responses", [SAID, TRIGGER]), ("/v1/responses/compact", [SAID])])
async def test_a_server_s_compaction_is_one_item_that_is_read_back_and_a_turn_that_is_not_trained(
    path: str, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    async with serving(tmp_path) as served:
        served.engine.answers[:] = [Message("assistant", "All is known."), Message("assistant", "Done.")]
        key = await served.key(metadata={"harness": "codex"})
        headers = {"Authorization": f"Bearer {key}"}
        body = {"model": "m", "tools": TOOLS, "input": asked}
        async with served.client.post(path, json=body, headers=headers) as response:
            assert response.status == 200
            output = (await response.json())["output"]
        [item] = [item for item in output if item["type"] == "compaction"]
        body = {"model": "m", "tools": TOOLS, "input": [SAID, item]}
        async with served.client.post("/v1/responses", json=body, headers=headers) as response:
            assert response.status == 200
        prompt = served.engine.requests[-1].call.messages
        assert "All is known." in prompt[-1].content
        assert (await served.counts(key))["roles"] == {"compaction": 1, "main": 1}
        async with served.client.get(f"/sessions/{key}/export?format=rows") as response:
            lines = (await response.text()).splitlines()
        assert ['"trained_tokens":0' in line for line in lines] == [True, False]
