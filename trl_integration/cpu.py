"""Lets TRL's `AsyncGRPOTrainer` run without a GPU: attention over packed rows by torch itself.

TRL packs a batch into a prefix tree and attends to it with a CUDA kernel fetched from the hub, and asks CUDA how fast
the device is. Both are replaced, once, for a process that has no CUDA device, and so are torch's linear layers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from trl.experimental.async_grpo import async_grpo_trainer, packing

from trl_integration import onednn


def run_without_gpu() -> bool:
    """Replace what needs CUDA; returns whether that was needed."""
    if torch.cuda.is_available():
        return False
    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attend)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None
    onednn.use_in_torch()
    return True


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_bounds: torch.Tensor,
    key_bounds: torch.Tensor,
    *_lengths: int,
    softmax_scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    **rest: Any,
) -> torch.Tensor:
    """Causal attention of each query segment to its own keys, aligned at their ends: FlashAttention's varlen call.

    query (tokens, heads, size); key and value (keys, key heads, size); bounds are the cumulative lengths of segments.
    A `window_size` (left, _) other than -1 limits how far back a query sees. ValueError: logits are to be capped.
    """
    if rest.get("softcap"):
        raise ValueError("Capped attention logits are not supported without a GPU.")
    out = torch.empty_like(query)
    bounds = zip(query_bounds.unfold(0, 2, 1).tolist(), key_bounds.unfold(0, 2, 1).tolist(), strict=True)
    for (first, end), (first_key, end_key) in bounds:
        mask = _visible(end - first, end_key - first_key, window_size[0])
        attended = scaled_dot_product_attention(
            query[first:end].transpose(0, 1)[None],
            key[first_key:end_key].transpose(0, 1)[None],
            value[first_key:end_key].transpose(0, 1)[None],
            attn_mask=mask,
            scale=softmax_scale,
            enable_gqa=True,
        )
        out[first:end] = attended[0].transpose(0, 1)
    return out


def _visible(queries: int, keys: int, window: int) -> torch.Tensor:
    """Which keys each query sees: (queries, keys), true up to its own place counted from the end."""
    place = torch.arange(queries)[:, None] + keys - queries
    others = torch.arange(keys)[None]
    seen = others <= place
    return seen & (others >= place - window) if window >= 0 else seen
