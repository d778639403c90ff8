"""Terminus 2: Chat Completions through litellm; its loop runs beside Harbor, a terminal in the sandbox is its hands.

It offers no tools: commands are JSON in the text of a reply.
"""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, RoleMarker

# Terminus is part of Harbor, of the same version. All it wants of a sandbox is tmux, which no language's registry has.
SCRIPT = """
command -v tmux >/dev/null 2>&1 || { apt-get update -q && apt-get install -q -y --no-install-recommends tmux; }
"""

TERMINUS_2 = Harness(
    name="terminus-2",
    agent="terminus-2",
    dialect="chat",
    bake=Bake(SCRIPT, "tmux -V"),
    base_url_suffix="/v1",
    kwargs={"record_terminal_session": False},
    window_kwargs={
        "model_info": {
            "max_input_tokens": "{window}",
            "max_output_tokens": "{max_output}",
            "input_cost_per_token": 0.0,
            "output_cost_per_token": 0.0,
        }
    },
    atif=True,
    roles=(
        RoleMarker("compaction", "last_user", text="You are about to hand off your work to another AI agent"),
        RoleMarker("compaction", "last_user", text="You are picking up work from a previous AI agent"),
        RoleMarker("compaction", "last_user", text="The next agent has a few questions for you"),
        RoleMarker("compaction", "last_user", text="Next steps (2-3 sentences):"),
    ),
    variants={
        "messages": {"dialect": "messages", "base_url_suffix": "", "key_variable": "ANTHROPIC_API_KEY"},
        "responses": {"dialect": "responses"},
    },
)
