"""float32 linear layers by oneDNN, from their weights as they are.

torch gives float32 products on x86 to MKL, which keeps its widest instructions for one maker's processors; oneDNN takes
them wherever they are. No weight is packed ahead, so one that changes in place is the one that is used. Products that a
library writes as `torch.mm` stay torch's own, as the ones with the output embedding in TRL's loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

AVAILABLE = bool(torch.backends.mkldnn.is_available()) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
_plain_linear = functional.linear


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`torch.nn.functional.linear`: x (..., in), weight (out, in), bias (out); gradients for all three, of first order.

    Anything but plain float32 tensors on a CPU goes torch's own way, with its errors, and all does where torch has no
    oneDNN. RuntimeError: a gradient of a gradient is asked for.
    """
    if not _suits(x, weight, bias):
        return _plain_linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return product(x, weight, bias)
    return _Linear.apply(x, weight, bias)


def _suits(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """A transform, a tracer, a nested or a mixed call is torch's to do or to refuse."""
    if not AVAILABLE or torch.is_autocast_enabled("cpu") or torch.jit.is_tracing():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    given = (x, weight) if bias is None else (x, weight, bias)
    if not all(map(_plain, given)) or weight.ndim != 2 or not x.ndim or not x.numel() or not weight.numel():
        return False
    return x.shape[-1] == weight.shape[1] and (bias is None or bias.shape == weight.shape[:1])


def _plain(tensor: torch.Tensor) -> bool:
    usual = (
        type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided and not tensor.is_nested
    )
    return bool(usual and tensor.dtype == torch.float32 and tensor.device.type == "cpu")


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x @ weight.T + bias, without gradients; float32 on a CPU."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        rows = grad.reshape(-1, grad.shape[-1])
        of_x = product(grad, weight.t().contiguous()) if ctx.needs_input_grad[0] else None
        of_weight = of_bias = None
        if ctx.needs_input_grad[1]:
            of_weight = product(rows.t().contiguous(), x.reshape(-1, x.shape[-1]).t().contiguous())
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(0)
        return of_x, of_weight, of_bias


def use_in_torch() -> None:
    """Every linear layer of this process, whoever made it, goes through `linear` from now on."""
    functional.linear = linear
