"""What a tiny training run needs beside the trainer: a model of two layers, a policy, an environment server."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, set_seed

from scripts.teacher import known_tasks
from tests.tokenizers import qwen3_dir
from tests.trainer.fake_vllm import BASE, WINDOW

ROOT = Path(__file__).parents[2]
SPLIT = "heldout"
TASKS = ROOT / "envs/harbor_env/bundled_tasks" / SPLIT


def tiny_model(folder: Path) -> Path:
    """Random weights for the vocabulary of Qwen3, two layers and grouped-query attention."""
    shutil.copytree(qwen3_dir(), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=True,
        initializer_range=0.2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    set_seed(0)
    LlamaForCausalLM(shape).save_pretrained(folder)
    return folder


class EverySecondTime:
    """A policy that solves the task it is asked, and the next time does not, and is done after one command."""

    def __init__(self) -> None:
        self._turns = itertools.count()

    def __call__(self, prompt: str) -> str:
        if "<tool_response>" in prompt or "It was tried already" in prompt:
            return "Done."
        solution = next((body for instruction, body in known_tasks() if instruction in prompt), "true")
        command = f"cd /app && {solution}" if next(self._turns) % 2 == 0 else "true"
        call = json.dumps({"name": "bash", "arguments": {"command": command}})
        return f"<tool_call>\n{call}\n</tool_call>"


async def sandbox_obstacle() -> str:
    """Why the server's Python cannot make a sandbox on this machine, "" where it can."""
    ask = "from harbor_env.sandboxes.preflight import obstacle; print(obstacle() or '')"
    process = await asyncio.create_subprocess_exec(
        str(ROOT / ".venv/bin/python"), "-c", ask, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    return told.decode().strip()


@asynccontextmanager
async def environment_server(engine_url: str, tokenizer: Path, data: Path) -> AsyncIterator[str]:
    """`openenv-harbor serve` from the server's own environment, over the bundled tasks; its URL."""
    await asyncio.to_thread(data.mkdir)
    with (data / "serve.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(str(ROOT / ".venv/bin/openenv-harbor"), "serve", "--llm-url", engine_url, "--model", BASE),
            *("--tokenizer", str(tokenizer), "--dataset", "bundled", "--data", str(data), "--port", str(_free_port())),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            assert process.stdout is not None
            ready = await process.stdout.readline()
            assert ready, (data / "serve.log").read_text()
            yield json.loads(ready)["url"]
        finally:
            process.terminate()
            await process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
