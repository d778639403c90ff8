"""Gemini CLI: Google's generateContent, streamed; it names no session, and compaction asks twice."""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, RoleMarker
from harbor_env.harnesses.npm import scripted

VERSION = "0.61.0"

GEMINI_CLI = Harness(
    name="gemini-cli",
    agent="harbor_env.harnesses.adapters:BakedGeminiCli",
    dialect="gemini",
    version=VERSION,
    bake=Bake(scripted("@google/gemini-cli", VERSION, "gemini"), "gemini --version"),
    key_variable="GEMINI_API_KEY",
    env={
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_DISABLE_AUTO_UPDATE": "true",
    },
    window_kwargs={"window": "{window}"},
    atif=True,
    roles=(
        RoleMarker("compaction", "system", text="specialized system component"),
        RoleMarker("subagent", "system", text="You CANNOT ask the user for input or clarification"),
        # Loops looked for, edits mended, outputs summed up: its side calls offer no tools, its agents always do.
        RoleMarker("auxiliary", "no_tools"),
    ),
)
