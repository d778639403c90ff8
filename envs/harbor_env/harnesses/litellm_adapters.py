"""The adapters whose Harbor module imports litellm: seconds of processor time that other harnesses do not pay for."""

from __future__ import annotations

from harbor.agents.installed.aider import Aider
from harbor.agents.installed.mini_swe_agent import MiniSweAgent

from harbor_env.harnesses.adapters import Baked


class BakedMiniSweAgent(Baked, MiniSweAgent):  # type: ignore[misc]
    command = "mini-swe-agent"


class BakedAider(Baked, Aider):  # type: ignore[misc]
    command = "aider"
