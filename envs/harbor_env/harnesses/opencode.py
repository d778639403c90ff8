"""OpenCode: any of four dialects, by the SDK its provider is configured with; always streamed."""

from __future__ import annotations

from typing import Any

from harbor_env.harnesses import Bake, DialectName, Harness, RoleMarker
from harbor_env.harnesses.npm import native

VERSION = "1.18.33"

# Several builds fit one machine; the last in order needs the least of its processor.
SCRIPT = native(
    "opencode-ai",
    VERSION,
    """
cp "$(ls -d "$tools"/node_modules/opencode-linux-* | tail -n 1)/bin/opencode" "$PREFIX/opencode"
chmod 755 "$PREFIX/opencode"
ln -sf "$PREFIX/opencode" /usr/local/bin/opencode
""",
)

PROVIDER = "gateway"
SDKS: dict[DialectName, str] = {
    "chat": "@ai-sdk/openai-compatible",
    "responses": "@ai-sdk/openai",
    "messages": "@ai-sdk/anthropic",
    "gemini": "@ai-sdk/google",
}


def config(dialect: DialectName) -> dict[str, Any]:
    """OpenCode's own configuration: one provider that speaks `dialect`, and nothing fetched or shared."""
    model = {"tool_call": True, "reasoning": True, "limit": {"context": "{window}", "output": "{max_output}"}}
    options = {"apiKey": "{{env:OPENAI_API_KEY}}", "baseURL": "{base_url}"}
    return {
        "provider": {PROVIDER: {"npm": SDKS[dialect], "options": options, "models": {"{model}": model}}},
        "autoupdate": False,
        "share": "disabled",
        "small_model": PROVIDER + "/{model}",
    }


def variant(dialect: DialectName) -> dict[str, Any]:
    suffix = "/v1beta" if dialect == "gemini" else "/v1"
    return {"dialect": dialect, "base_url_suffix": suffix, "kwargs": {"opencode_config": config(dialect)}}


OPENCODE = Harness(
    name="opencode",
    agent="harbor_env.harnesses.adapters:BakedOpenCode",
    version=VERSION,
    bake=Bake(SCRIPT, "opencode --version"),
    model=PROVIDER + "/{model}",
    configures_itself=True,
    env={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    },
    atif=True,
    roles=(
        RoleMarker("compaction", "system", text="context summarization agent"),
        RoleMarker("auxiliary", "system", text="You are a title generator"),
        RoleMarker("subagent", "header", name="x-parent-session-id"),
    ),
    variants={dialect: variant(dialect) for dialect in SDKS if dialect != "chat"},
    **variant("chat"),
)
