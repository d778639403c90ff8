"""Harbor's adapters, without what a layer and a gateway make needless; everything else is Harbor's own code.

A harness a layer holds is not installed again; without a layer, on a cloud sandbox say, it is installed as always. No
step is priced: the tokens come from an engine of one's own, and the price list is litellm's, whose import holds up
every rollout of this process for seconds, a cancelled one too.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent
from harbor.agents.installed.claude_code import ClaudeCode
from harbor.agents.installed.codex import Codex
from harbor.agents.installed.gemini_cli import GeminiCli
from harbor.agents.installed.opencode import OpenCode
from harbor.agents.installed.pi import _REMOTE_PI_CONFIG_DIR, Pi
from harbor.agents.installed.qwen_code import QwenCode
from harbor.environments.base import BaseEnvironment


class Baked(BaseInstalledAgent):  # type: ignore[misc]
    """Mix-in before an adapter: `command` is looked for on the PATH of the sandbox."""

    command: str

    async def install(self, environment: BaseEnvironment) -> Any:
        found = await environment.exec(command=f"command -v {self.command} >/dev/null 2>&1")
        if found.return_code != 0:
            await super().install(environment)

    def _estimate_step_costs(self, steps: list[Any]) -> float | None:
        return None

    def _compute_cost_from_pricing(self, *args: Any, **kwargs: Any) -> float | None:
        return None


class BakedClaudeCode(Baked, ClaudeCode):  # type: ignore[misc]
    command = "claude"


class BakedCodex(Baked, Codex):  # type: ignore[misc]
    command = "codex"


class BakedOpenCode(Baked, OpenCode):  # type: ignore[misc]
    command = "opencode"


class BakedGeminiCli(Baked, GeminiCli):  # type: ignore[misc]
    """Takes every model for one of `TAKEN_FOR` tokens: of a smaller `window` it is told as the share to compact at."""

    command = "gemini"
    TAKEN_FOR = 1_048_576
    FULL = 0.5
    """Of the window, as Gemini CLI has it for every model."""

    def __init__(self, *args: Any, window: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._window = window

    def _build_settings_config(self, *args: Any, **kwargs: Any) -> tuple[dict[str, Any] | None, str | None]:
        config, alias = super()._build_settings_config(*args, **kwargs)
        if self._window:
            share = self.FULL * min(self._window, self.TAKEN_FOR) / self.TAKEN_FOR
            config = {**(config or {}), "model": {"compressionThreshold": share}}
        return config, alias


class BakedQwenCode(Baked, QwenCode):  # type: ignore[misc]
    command = "qwen"


class BakedPi(Baked, Pi):  # type: ignore[misc]
    """`window` and `max_output`, in tokens, go into the model's entry, which holds nothing but its name otherwise.

    `arguments` are further ones of pi's command line.

    pi keeps the newest part of a history when it compacts, and room for what follows: both more than a small window
    has, so they are told too. It also keeps tokens free in case it counted a prompt wrongly, and in a small window they
    are all there are: it would ask for replies of one token. The gateway counts exactly, so the window it is told is
    larger by them.
    """

    command = "pi"
    RESERVED, KEPT = 16_384, 20_000
    """pi's own numbers of tokens."""
    MISCOUNT = 4_096
    """Tokens pi keeps free of a prompt and its reply."""
    SHARE = 4
    """Neither is more than one part in this many of the window."""

    def __init__(
        self, *args: Any, window: int = 0, max_output: int = 0, arguments: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._window = window
        self._arguments = shlex.join(arguments)
        told = window and window + self.MISCOUNT
        self._limits = {name: n for name, n in (("contextWindow", told), ("maxTokens", max_output)) if n}

    def build_cli_flags(self) -> str:
        return " ".join(part for part in (super().build_cli_flags(), self._arguments) if part)

    def _build_custom_models_json(self, access: Any, model_id: str) -> dict[str, Any] | None:
        models: dict[str, Any] | None = super()._build_custom_models_json(access, model_id)
        for provider in (models or {}).get("providers", {}).values():
            for model in provider["models"]:
                model.update(self._limits)
        return models

    async def _write_custom_models_json(self, environment: BaseEnvironment, models_json: dict[str, Any]) -> None:
        await super()._write_custom_models_json(environment, models_json)
        if self._window:
            await self._upload_config_text(
                environment,
                content=json.dumps({"compaction": self.compaction()}),
                remote_path=(_REMOTE_PI_CONFIG_DIR / "settings.json").as_posix(),
                filename="settings.json",
            )

    def compaction(self) -> dict[str, int]:
        """Tokens pi keeps free and tokens it keeps of a history."""
        most = self._window // self.SHARE
        reserved = min(self.RESERVED, most) + self.MISCOUNT
        return {"reserveTokens": reserved, "keepRecentTokens": min(self.KEPT, most)}
