"""Puts a fake vLLM where TRL, which must be able to import one, finds it; a spawned process takes the path over."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from accelerate import PartialState

sys.path.append(str(Path(__file__).parents[1] / "data/trainer/fake_vllm_dist"))
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _logging() -> None:
    """TRL's loggers ask which process of how many this is."""
    PartialState(cpu=True)
