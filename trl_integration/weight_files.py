"""Whole weights from trainer to engine as a file: where there is no GPU, and NCCL has nothing to speak through.

    WeightFiles("http://127.0.0.1:8000", Path("/dev/shm/weights"))      # AsyncGRPOTrainer(weight_transfer=...)

The engine is vLLM with `trl_integration.vllm_plugin` installed beside it and
`--weight-transfer-config '{"backend": "safetensors_file"}'`; both see the folder. An adapter is merged for the
transfer: serving merged weights costs the engine nothing, while serving an adapter halves its speed on a CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import requests
import torch
from safetensors.torch import save_file

CONTROL_SECONDS = 300
TRANSFER_SECONDS = 1800


class WeightFiles:
    """TRL's `WeightTransferProtocol`. Each version is one file, there until the engine has read it.

    `next_version` gives the number the engine is told; a run that goes on counts on from where it was.
    RuntimeError: the engine refused, with what it said.
    """

    def __init__(self, engine_url: str, folder: Path) -> None:
        self._url = engine_url.rstrip("/")
        self._folder = folder.resolve()
        self.next_version: Callable[[], int] = itertools.count(1).__next__

    def init_weight_transfer(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._post("init_weight_transfer_engine", {"init_info": {}})

    def pause(self) -> None:
        """Requests in flight are kept, and go on under the new weights."""
        self._post("pause?mode=keep")

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        version = self.next_version()
        path = self._folder / f"v{version}.safetensors"
        try:
            save_file({name: tensor.detach().contiguous() for name, tensor in iterator}, path)
            self._post("start_weight_update")
            self._post("update_weights", {"update_info": {"path": str(path)}}, TRANSFER_SECONDS)
            self._post("finish_weight_update", {"weight_version": str(version)}, TRANSFER_SECONDS)
            self._post("reset_prefix_cache")
        finally:
            path.unlink(missing_ok=True)

    def resume(self) -> None:
        self._post("resume")

    def destroy(self) -> None:
        """Nothing is held between transfers."""

    def _post(self, route: str, body: dict[str, Any] | None = None, seconds: int = CONTROL_SECONDS) -> None:
        answer = requests.post(f"{self._url}/{route}", json=body, timeout=seconds)
        if answer.status_code >= requests.codes.bad_request:
            raise RuntimeError(
                f"The engine at {self._url} refused /{route} with {answer.status_code}: {answer.text[:300]} "
                "Was it started with VLLM_SERVER_DEV_MODE=1 and "
                """--weight-transfer-config '{"backend": "safetensors_file"}', and are both told the same folder?"""
            )
        # Whether the cache could be reset is told in the answer, not by its status.
        if answer.headers.get("Content-Type", "").startswith("application/json"):
            told = answer.json()
            if isinstance(told, dict) and told.get("success") is False:
                raise RuntimeError(f"The engine at {self._url} could not do /{route}: {answer.text[:300]}")
