"""float32 linear layers by oneDNN, from their weights as they are.

torch gives float32 products on x86 to MKL, which keeps its widest instructions for one maker's processors; oneDNN takes
them wherever they are. No weight is packed ahead, so one that changes in place is the one that is used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

AVAILABLE = bool(torch.backends.mkldnn.is_available()) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
_plain_linear = functional.linear


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`torch.nn.functional.linear`: x (..., in), weight (out, in), bias (out); gradients for all three.

    Anything but float32 on a CPU goes torch's own way, and so does all where torch has no oneDNN.
    """
    if not _suits(x, weight):
        return _plain_linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return product(x, weight, bias)
    return _Linear.apply(x, weight, bias)


def _suits(x: torch.Tensor, weight: torch.Tensor) -> bool:
    if torch.is_autocast_enabled("cpu") or x.device.type != "cpu" or not AVAILABLE:
        return False
    both = bool(x.dtype == torch.float32 and weight.dtype == torch.float32)
    return both and weight.ndim == 2 and x.numel() > 0


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x @ weight.T + bias, without gradients; float32 on a CPU."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        rows = grad.reshape(-1, grad.shape[-1])
        of_x = product(grad, weight.t().contiguous()) if ctx.needs_input_grad[0] else None
        of_weight = of_bias = None
        if ctx.needs_input_grad[1]:
            of_weight = product(rows.t().contiguous(), x.reshape(-1, x.shape[-1]).t().contiguous())
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(0)
        return of_x, of_weight, of_bias


def use_in_torch() -> None:
    """Every linear layer of this process, now and later, goes through `linear`."""
    functional.linear = linear
