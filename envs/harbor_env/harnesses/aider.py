"""aider: Chat Completions through litellm, streamed; no tools: it rewrites its prompt when a file is added to it."""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, RoleMarker, pypi

VERSION = "0.86.2"

SCRIPT = pypi.script(f"aider-chat=={VERSION}", command='ln -sf "$python/bin/aider" /usr/local/bin/aider')

AIDER = Harness(
    name="aider",
    agent="harbor_env.harnesses.litellm_adapters:BakedAider",
    dialect="chat",
    version=VERSION,
    bake=Bake(SCRIPT, "aider --version"),
    base_url_suffix="/v1",
    env={
        "AIDER_ANALYTICS": "false",
        "AIDER_CHECK_UPDATE": "false",
        "AIDER_SHOW_MODEL_WARNINGS": "false",
        "AIDER_SHOW_RELEASE_NOTES": "false",
        # litellm fetches a price list at import otherwise, and waits for it where there is no network.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    roles=(
        RoleMarker("auxiliary", "system", text="one-line Git commit messages"),
        RoleMarker("compaction", "system", text="*Briefly* summarize this partial conversation"),
    ),
    variants={"messages": {"dialect": "messages", "base_url_suffix": "", "key_variable": "ANTHROPIC_API_KEY"}},
)
