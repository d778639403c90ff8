"""Harbor's adapters, without what a layer and a gateway make needless; everything else is Harbor's own code.

A harness a layer holds is not installed again; without a layer, on a cloud sandbox say, it is installed as always. No
step is priced: the tokens come from an engine of one's own, and a price list would take seconds to load.
"""

from __future__ import annotations

from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent
from harbor.agents.installed.claude_code import ClaudeCode
from harbor.agents.installed.gemini_cli import GeminiCli
from harbor.agents.installed.opencode import OpenCode
from harbor.agents.installed.pi import Pi
from harbor.agents.installed.qwen_code import QwenCode
from harbor.environments.base import BaseEnvironment


class Baked(BaseInstalledAgent):  # type: ignore[misc]
    """Mix-in before an adapter: `command` is looked for on the PATH of the sandbox."""

    command: str

    async def install(self, environment: BaseEnvironment) -> Any:
        found = await environment.exec(command=f"command -v {self.command} >/dev/null 2>&1")
        if found.return_code != 0:
            await super().install(environment)


class BakedClaudeCode(Baked, ClaudeCode):  # type: ignore[misc]
    command = "claude"

    def _estimate_step_costs(self, steps: list[Any]) -> float | None:
        return None


class BakedOpenCode(Baked, OpenCode):  # type: ignore[misc]
    command = "opencode"


class BakedGeminiCli(Baked, GeminiCli):  # type: ignore[misc]
    command = "gemini"


class BakedQwenCode(Baked, QwenCode):  # type: ignore[misc]
    command = "qwen"


class BakedPi(Baked, Pi):  # type: ignore[misc]
    """`window` and `max_output`, in tokens, go into the model's entry, which holds nothing but its name otherwise."""

    command = "pi"

    def __init__(self, *args: Any, window: int = 0, max_output: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = {name: n for name, n in (("contextWindow", window), ("maxTokens", max_output)) if n}

    def _build_custom_models_json(self, access: Any, model_id: str) -> dict[str, Any] | None:
        models: dict[str, Any] | None = super()._build_custom_models_json(access, model_id)
        for provider in (models or {}).get("providers", {}).values():
            for model in provider["models"]:
                model.update(self._limits)
        return models
