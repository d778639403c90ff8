"""Codex: OpenAI Responses, always streamed; subagents and compaction under one key.

A provider with a name of its own keeps Codex to plain HTTP and has it write its summaries itself, as text it asks the
model for. Under the name `openai` it tries a WebSocket first and leaves compaction to the server; the gateway answers
both, but a summary in the open is worth more to a trainer.
"""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, RoleMarker
from harbor_env.harnesses.npm import native

VERSION = "0.171.0"

# Beside the binary lies `rg`, which Codex offers the model on its PATH; the voice program is half of what is left.
SCRIPT = native(
    "@openai/codex",
    VERSION,
    r"""
cp -R "$tools"/node_modules/@openai/codex-linux-*/vendor/*/. "$PREFIX/"
rm -rf "$PREFIX/codex-resources/voice"
printf '#!/bin/sh\nPATH="%s:$PATH" exec "%s" "$@"\n' "$PREFIX/codex-path" "$PREFIX/bin/codex" >/usr/local/bin/codex
chmod 755 /usr/local/bin/codex
""",
)

PROVIDER = {
    "name": "gateway",
    "base_url": "",
    "env_key": "OPENAI_API_KEY",
    "wire_api": "responses",
    "supports_websockets": False,
}

CODEX = Harness(
    name="codex",
    agent="harbor_env.harnesses.adapters:BakedCodex",
    dialect="responses",
    version=VERSION,
    bake=Bake(SCRIPT, "codex --version"),
    base_url_suffix="/v1",
    kwargs={
        "config": {
            "model_provider": "gateway",
            "model_providers": {"gateway": PROVIDER},
            "check_for_update_on_startup": False,
            "analytics": {"enabled": False},
        }
    },
    window_kwargs={
        "config": {"model_context_window": "{window}"},
    },
    atif=True,
    roles=(
        RoleMarker("compaction", "last_user", text="CONTEXT CHECKPOINT COMPACTION"),
        RoleMarker("subagent", "header", name="x-openai-subagent", text="collab_spawn"),
        RoleMarker("auxiliary", "no_tools"),
    ),
)
