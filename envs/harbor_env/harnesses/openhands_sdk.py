"""OpenHands SDK: Chat Completions, Messages or Responses through litellm, never streamed.

Thinking of a model it does not know is dropped from its history.
"""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, pypi

VERSION = "1.58.2"

SCRIPT = pypi.script(
    f"openhands-sdk=={VERSION} openhands-tools=={VERSION} fastapi",
    command="""
mkdir -p /opt/openhands-sdk-venv/bin
printf '#!/bin/sh\\nexec "%s" "$@"\\n' "$python/bin/python3" >/opt/openhands-sdk-venv/bin/python
chmod 755 /opt/openhands-sdk-venv/bin/python
""",
)

OPENHANDS_SDK = Harness(
    name="openhands-sdk",
    agent="openhands-sdk",
    dialect="chat",
    version=VERSION,
    bake=Bake(SCRIPT, "/opt/openhands-sdk-venv/bin/python -c 'import openhands.sdk, openhands.tools'"),
    base_url_suffix="/v1",
    key_variable="LLM_API_KEY",
    env={
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "OPENHANDS_SUPPRESS_BANNER": "1",
    },
    kwargs={"config": {"max_output_tokens": "{max_output}"}},
    window_kwargs={"config": {"max_input_tokens": "{window}"}},
    atif=True,
    variants={"messages": {"dialect": "messages", "base_url_suffix": ""}, "responses": {"dialect": "responses"}},
)
