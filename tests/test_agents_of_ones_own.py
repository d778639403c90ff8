"""An agent class of the user's own runs as a harness by `module:Class`, with nothing written down about it."""

from __future__ import annotations

from pathlib import Path

from harbor_env.gateway.types import Message, ToolCall
from harbor_env.rollout import GatewayAddress, RolloutSpec, run_rollout
from tests.serving import serving
from tests.tiny_harness import write_answer, write_task

WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
DONE = Message("assistant", "Done.")


async def test_a_class_named_by_its_module_solves_a_task_and_is_trained_as_one_row(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as served:
        served.engine.answers[:] = [WRITES, DONE]
        gateway = GatewayAddress(served.url, model="m", level="tokens")
        task = write_task(tmp_path / "write-42")
        spec = RolloutSpec("r1", task, "tests.tiny_harness:TinyAgent", gateway, tmp_path / "out")
        result = await run_rollout(spec)
    assert (result.ok, result.reward, result.harness) == (True, 1.0, "tests.tiny_harness:TinyAgent"), result
    assert (result.counts["rows"], result.counts["turns"]) == (1, 2)
    assert result.counts["trainable_tokens"] == result.counts["sampled_tokens"]
