"""Qwen Code: Chat Completions, streamed; what it takes for a broken reply it throws away and asks again."""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, RoleMarker
from harbor_env.harnesses.npm import scripted

VERSION = "0.24.4"

QWEN_CODE = Harness(
    name="qwen-coder",
    agent="harbor_env.harnesses.adapters:BakedQwenCode",
    dialect="chat",
    version=VERSION,
    bake=Bake(scripted("@qwen-code/qwen-code", VERSION, "qwen"), "qwen --version"),
    base_url_suffix="/v1",
    env={"QWEN_TELEMETRY_ENABLED": "false"},
    kwargs={
        "config": {
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
        }
    },
    window_kwargs={"config": {"model": {"generationConfig": {"contextWindowSize": "{window}"}}}},
    atif=True,
    discards=True,
    roles=(
        RoleMarker("compaction", "system", text="You are the component that summarizes"),
        RoleMarker("subagent", "system", text="You operate in non-interactive mode: do not ask the user questions"),
        RoleMarker("auxiliary", "no_tools"),
    ),
)
