#!/usr/bin/env bash
# Runs a command while vLLM serves SmolLM2 on the CPU, and stops the engine afterwards. The command finds its address in
# LLM_URL. Needs what `make engine` makes.
#
#   scripts/with_engine.sh sh -c 'curl -s $LLM_URL/v1/models'
set -euo pipefail
cd "$(dirname "$0")/.."
PORT=${PORT:-8000}
MODEL=${MODEL:-.cache/models/smollm2}
START_SECONDS=${START_SECONDS:-300}
export LLM_URL="http://127.0.0.1:$PORT"
log=.cache/engine.log

scripts/serve_vllm.sh "$MODEL" "$PORT" >"$log" 2>&1 &
engine=$!
trap 'kill "$engine" 2>/dev/null; wait "$engine" 2>/dev/null || true' EXIT
echo "engine: starting on $LLM_URL, log in $log"
answers() { .venv/bin/python -c "import urllib.request; urllib.request.urlopen('$LLM_URL/health', timeout=5)" 2>/dev/null; }
until answers; do
    if ! kill -0 "$engine" 2>/dev/null || [ "$SECONDS" -gt "$START_SECONDS" ]; then
        tail -n 20 "$log" >&2
        echo "engine: did not start; its log is in $log" >&2
        exit 1
    fi
    sleep 1
done
echo "engine: ready after $SECONDS s"
"$@"
