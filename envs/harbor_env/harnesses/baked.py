"""Harbor's adapters for harnesses that a layer may already hold: installing is skipped when the command is there.

Everything else is Harbor's own code. Without a layer, on a cloud sandbox say, the adapter installs as it always does.
"""

from __future__ import annotations

from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent
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
