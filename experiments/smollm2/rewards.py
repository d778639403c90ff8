"""Rewards for runs of a model that solves nothing yet: groups still differ, so a step has something to learn."""

from __future__ import annotations

from trl_integration.rewards import Scored


def brevity(scored: Scored) -> float:
    """More for fewer sampled tokens; nothing to train a model for."""
    return 1.0 / (1 + scored.tokens)
