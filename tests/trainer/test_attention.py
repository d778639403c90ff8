"""Attention without a GPU gives what the definition gives, segment by segment."""

from __future__ import annotations

import math

import pytest
import torch

from trl_integration.cpu import attend

SIZE = 8
SEGMENTS = [(3, 3), (1, 5), (4, 9)]
"""(queries, keys): a prompt, one token that continues a prefix, and a branch of four."""


def by_definition(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int) -> torch.Tensor:
    """One segment, one query and head at a time: a query sees the keys up to its own place, counted from the end."""
    out = torch.zeros_like(query)
    heads_per_key = query.shape[1] // key.shape[1]
    for place in range(len(query)):
        last = len(key) - len(query) + place
        first = max(0, last - window) if window >= 0 else 0
        for head in range(query.shape[1]):
            seen = key[first : last + 1, head // heads_per_key], value[first : last + 1, head // heads_per_key]
            weights = torch.softmax(seen[0] @ query[place, head] / math.sqrt(SIZE), dim=0)
            out[place, head] = weights @ seen[1]
    return out


@pytest.mark.parametrize("window", [-1, 0, 2, 100])
@pytest.mark.parametrize(("heads", "key_heads"), [(2, 2), (4, 2), (4, 1)])
def test_every_segment_attends_to_its_own_keys_aligned_at_their_ends(window: int, heads: int, key_heads: int) -> None:
    torch.manual_seed(0)
    queries, keys = (sum(pair[side] for pair in SEGMENTS) for side in (0, 1))
    query = torch.randn(queries, heads, SIZE, dtype=torch.float64)
    key, value = (torch.randn(keys, key_heads, SIZE, dtype=torch.float64) for _ in range(2))
    bounds = [
        torch.tensor([0, *(pair[side] for pair in SEGMENTS)], dtype=torch.int32).cumsum(0).to(torch.int32)
        for side in (0, 1)
    ]
    out = attend(query, key, value, *bounds, 4, 9, causal=True, window_size=(window, 0))
    places = zip(bounds[0].tolist(), bounds[0][1:].tolist(), bounds[1].tolist(), bounds[1][1:].tolist(), strict=False)
    for first, end, first_key, end_key in places:
        wanted = by_definition(query[first:end], key[first_key:end_key], value[first_key:end_key], window)
        torch.testing.assert_close(out[first:end], wanted)


def test_the_scale_is_the_caller_s() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(4, 1, SIZE) for _ in range(3))
    bounds = torch.tensor([0, 4], dtype=torch.int32)
    scaled = attend(query, key, value, bounds, bounds, softmax_scale=0.5)
    torch.testing.assert_close(scaled, by_definition(query * 0.5 * math.sqrt(SIZE), key, value, -1))


def test_capped_logits_are_refused() -> None:
    tokens, bounds = torch.ones(1, 1, SIZE), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="not supported without a GPU"):
        attend(tokens, tokens, tokens, bounds, bounds, softcap=50.0)
