"""Harbor's adapters, without what a layer and a gateway make needless; everything else is Harbor's own code.

A harness a layer holds is not installed again; without a layer, on a cloud sandbox say, it is installed as always. No
step is priced: the tokens come from an engine of one's own, and a price list would take seconds to load.
"""

from __future__ import annotations

from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent
from harbor.agents.installed.claude_code import ClaudeCode
from harbor.agents.installed.mini_swe_agent import MiniSweAgent
from harbor.environments.base import BaseEnvironment


class Baked(BaseInstalledAgent):  # type: ignore[misc]
    """Mix-in before an adapter: `command` is looked for on the PATH of the sandbox."""

    command: str

    async def install(self, environment: BaseEnvironment) -> Any:
        found = await environment.exec(command=f"command -v {self.command} >/dev/null 2>&1")
        if found.return_code != 0:
            await super().install(environment)


class BakedMiniSweAgent(Baked, MiniSweAgent):  # type: ignore[misc]
    command = "mini-swe-agent"


class BakedClaudeCode(Baked, ClaudeCode):  # type: ignore[misc]
    command = "claude"

    def _estimate_step_costs(self, steps: list[Any]) -> float | None:
        return None
