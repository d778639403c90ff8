"""What vLLM on a CPU needs for training: new weights from a file, copied into linear layers as they are.

vLLM loads this as a general plugin in each of its processes, wherever this package is installed. It does nothing on a
GPU. vLLM's own linear layers for a CPU hold packed copies of their weights, which a copy in place would not reach;
those of `onednn` hold none. Every vLLM on a CPU in this environment gets them, also one that takes no weights this way:
plugins are not told the configuration, and the layers are packed before the weight transfer is set up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trl_integration import onednn

BACKEND = "safetensors_file"


def register() -> None:
    """The plugin's entry point."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.layers import utils

    utils.dispatch_cpu_unquantized_gemm = unpacked(utils.dispatch_cpu_unquantized_gemm)
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, file_engine())


def unpacked(choose: Callable[[Any, bool], None]) -> Callable[[Any, bool], None]:
    """In place of `choose`, vLLM's choice of a kernel for a layer: the weight of a linear layer stays where it is.

    A layer without a matrix (a convolution, one still without values) is left to vLLM, which relies on its packing.
    """

    def leave(layer: Any, remove_weight: bool) -> None:
        if layer.weight.is_meta or layer.weight.ndim != 2:
            choose(layer, remove_weight)
        else:
            layer.cpu_linear = onednn.linear

    return leave


def file_engine() -> type[Any]:
    """The engine's side of `WeightFiles`; made here, for vLLM is importable in vLLM's processes alone."""
    from safetensors import safe_open
    from vllm.distributed.weight_transfer.base import (
        WeightTransferEngine,
        WeightTransferInitInfo,
        WeightTransferUpdateInfo,
    )

    @dataclass
    class NoInit(WeightTransferInitInfo):  # type: ignore[misc]
        """There is nothing to agree on."""

    @dataclass
    class File(WeightTransferUpdateInfo):  # type: ignore[misc]
        path: str = ""

    class FileEngine(WeightTransferEngine):  # type: ignore[misc]
        init_info_cls = NoInit
        update_info_cls = File

        def init_transfer_engine(self, init_info: NoInit) -> None:
            pass

        def start_weight_update(self) -> None:
            pass

        def finish_weight_update(self) -> None:
            pass

        def update_weights(self, update_info: dict[str, Any]) -> None:
            self.receive_weights(self.parse_update_info(update_info))

        def receive_weights(self, update_info: File) -> None:
            with safe_open(update_info.path, framework="pt") as file:
                self.model.load_weights((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118

        def shutdown(self) -> None:
            pass

    return FileEngine
