"""A group: the rollouts of one task in one harness, of which each is worth something only beside the others.

Pure. One that could not be scored takes no part.
"""

from __future__ import annotations

from collections.abc import Sequence


def has_contrast(rewards: Sequence[float | None]) -> bool:
    """Whether the scored rollouts differ at all."""
    return len({reward for reward in rewards if reward is not None}) > 1
