"""pi: Chat Completions, Anthropic Messages or OpenAI Responses, by the API its model is configured with; streamed."""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, RoleMarker
from harbor_env.harnesses.npm import scripted

VERSION = "1.6.0"

PI = Harness(
    name="pi",
    agent="harbor_env.harnesses.adapters:BakedPi",
    dialect="chat",
    version=VERSION,
    bake=Bake(scripted("@earendil-works/pi-coding-agent", VERSION, "pi"), "pi --version"),
    base_url_suffix="/v1",
    env={"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"},
    kwargs={"max_output": "{max_output}"},
    # A model it does not know is taken for one with 128k tokens.
    window_kwargs={"window": "{window}"},
    atif=True,
    roles=(RoleMarker("compaction", "system", text="context summarization assistant"),),
    variants={
        "messages": {"dialect": "messages", "base_url_suffix": "", "key_variable": "ANTHROPIC_API_KEY"},
        "responses": {"dialect": "responses"},
    },
)
