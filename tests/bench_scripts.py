"""The modules of the benchmarks under `scripts/`, importable as they import each other."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

recorded = importlib.import_module("bench.recorded")
replay = importlib.import_module("bench.replay")
replay_engine = importlib.import_module("bench.replay_engine")
rows = importlib.import_module("bench.rows")
vllm_chat = importlib.import_module("bench.vllm_chat")
tap = importlib.import_module("bench.tap")
compare_rows = importlib.import_module("compare_rows")
