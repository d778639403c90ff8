#!/usr/bin/env bash
# A model of 135M parameters learns to use two coding agents, on a CPU: teacher, SFT, reinforcement learning in both
# harnesses and in one, and what each is worth on tasks nobody trained on. Hours; what is there already is kept, so a
# run that was stopped goes on.
#
#   scripts/learn.sh                 everything, below .cache/learn
#   scripts/learn.sh smoke           three steps of reinforcement learning on the model as it comes, in 10 minutes
#   OUT=DIR EXPERIMENT=experiments/smollm2 ENGINE_PORT=8000 SERVER_PORT=8001
#
# Needs `make engine` and scripts/trainer_env.sh .cache/engine. vLLM gets less time than it needs from a busy machine.
set -euo pipefail
cd "$(dirname "$0")/.."
EXPERIMENT=${EXPERIMENT:-experiments/smollm2}
OUT=${OUT:-.cache/learn}
ENGINE_PORT=${ENGINE_PORT:-8000}
SERVER_PORT=${SERVER_PORT:-8001}
BIN=${BIN:-.venv/bin}
ENGINE=${ENGINE:-.cache/engine}
START_SECONDS=${START_SECONDS:-600}
TRAIN="$ENGINE/bin/python"
export PYTHONPATH="envs:.:${PYTHONPATH:-}" HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=PASSIVE TRL_EXPERIMENTAL_SILENCE=1
. "$EXPERIMENT/settings.sh"

engine=; server=
stop() {
    for process in $server $engine; do kill "$process" 2>/dev/null || true; done
    for process in $server $engine; do wait "$process" 2>/dev/null || true; done
    engine=; server=
}
trap stop EXIT
trap 'exit 130' INT TERM

say() { echo "learn: $*"; }

answers() { "$BIN/python" -c "import urllib.request; urllib.request.urlopen('$1/health', timeout=5)" 2>/dev/null; }

wait_for() { # NAME PID URL LOG
    local began=$SECONDS
    until answers "$3"; do
        if ! kill -0 "$2" 2>/dev/null || [ $((SECONDS - began)) -gt "$START_SECONDS" ]; then
            tail -n 20 "$4" >&2
            say "the $1 did not start; its log is $4" >&2
            exit 1
        fi
        sleep 2
    done
}

# A trainer that waits for its turn makes what was sampled stale; an engine that does, everybody wait.
serve() { # MODEL: the engine, and the environment server before it
    local malloc=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
    [ -e "$malloc" ] || malloc=
    stop
    say "serving $1"
    LD_PRELOAD=$malloc ENGINE=$ENGINE WINDOW=4096 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=2 \
        nice -n 5 scripts/serve_vllm.sh "$1" "$ENGINE_PORT" --weight-transfer-config '{"backend": "safetensors_file"}' \
        --max-num-seqs 32 --block-size 32 >"$OUT/engine.log" 2>&1 &
    engine=$!
    wait_for engine "$engine" "http://127.0.0.1:$ENGINE_PORT" "$OUT/engine.log"
    nice -n 10 "$BIN/openenv-harbor" serve --llm-url "http://127.0.0.1:$ENGINE_PORT" --model policy --tokenizer "$1" \
        --dataset "$OUT/tasks/rl" --port "$SERVER_PORT" --max-concurrent-envs 32 >"$OUT/server.log" 2>&1 &
    server=$!
    wait_for server "$server" "http://127.0.0.1:$SERVER_PORT" "$OUT/server.log"
}

tasks() { # NAME COUNT SEED SPLIT
    [ -d "$OUT/tasks/$1" ] || "$BIN/python" scripts/make_tasks.py --families "$FAMILIES" --count "$2" --seed "$3" \
        --split "$4" --out "$OUT/tasks/$1" >/dev/null
}

all_tasks() {
    tasks sft "$SFT_TASKS" 2101 train
    tasks rl "$RL_TASKS" 2102 train
    tasks dev/train "$DEV_TASKS" 2103 train
    tasks dev/heldout "$DEV_TASKS" 2104 heldout
    tasks test/train "$TEST_TASKS" 2105 train
    tasks test/heldout "$TEST_TASKS" 2106 heldout
}

base_model() {
    local template gguf
    [ ! -e "$OUT/base/config.json" ] || return 0
    # SmolLM2's own template shows the model no tools; TRL brings one that writes the same turns with tools in them.
    template=$("$TRAIN" -c 'from importlib.util import find_spec as f; print(f("trl").submodule_search_locations[0])')
    gguf=$("$BIN/python" -c 'from harbor_env.embedded import embedded_model; print(embedded_model(print))')
    "$TRAIN" scripts/make_smollm2.py "$OUT/base" --gguf "$gguf" \
        --chat-template "$template/chat_templates/qwen3_instruct_2507.jinja"
}

teach() {
    TEACHER_TASKS="$OUT/tasks/sft" "$BIN/openenv-harbor" rollout --engine scripted:scripts/teacher.py:solve \
        --tokenizer "$OUT/base" --dataset "$OUT/tasks/sft" -n "$SFT_TASKS" --harness "$HARNESSES" --rotate every --warm \
        --agent-kwargs "$EXPERIMENT/agents.yaml" --concurrency 4 --out "$OUT/teacher"
    "$TRAIN" scripts/collect_sft.py "$OUT/teacher" --out "$OUT/sft.jsonl"
}

fine_tune() {
    [ -e "$OUT/sft/config.json" ] || "$TRAIN" scripts/train_sft.py "$OUT/sft.jsonl" --model "$OUT/base" --out "$OUT/sft" $SFT_OPTIONS
}

evaluate() { # NAME MODEL TASKS SAMPLES
    local done="$OUT/$3/$1/.done"
    [ ! -e "$done" ] || return 0
    serve "$2"
    "$BIN/python" scripts/evaluate.py run --name "$1" --out "$OUT/$3" --dataset "$OUT/tasks/$3" --harness "$HARNESSES" \
        --samples "$4" -- --llm-url "http://127.0.0.1:$ENGINE_PORT" --model policy --tokenizer "$2" --warm \
        --agent-kwargs "$EXPERIMENT/agents.yaml" --concurrency 24 --retries 2 --temperature 1 --max-reply-tokens 120 \
        --max-calls 3 --max-output-tokens 300 --agent-timeout 90
    touch "$done"
}

reinforce() { # NAME [KEY=VALUE ...]
    local name=$1 steps resume=
    shift
    steps=$("$TRAIN" -c "from trl_integration.config import load; from pathlib import Path; import sys
print(load(Path('$EXPERIMENT/$name.yaml'), sys.argv[1:]).training['max_steps'])" "$@")
    [ ! -d "$OUT/$name/checkpoint-$steps" ] || return 0
    serve "$OUT/sft"
    ls -d "$OUT/$name"/checkpoint-* >/dev/null 2>&1 && resume=--resume
    say "reinforcement learning: $name, $steps steps"
    "$TRAIN" scripts/train.py "$EXPERIMENT/$name.yaml" model="$OUT/sft" output_dir="$OUT/$name" weight_folder="$OUT/weights" $resume \
        engine_url="http://127.0.0.1:$ENGINE_PORT" servers="[http://127.0.0.1:$SERVER_PORT]" "$@"
}

last() { # NAME: its last checkpoint
    ls -d "$OUT/$1"/checkpoint-* | sort -V | tail -n 1
}

everything() {
    mkdir -p "$OUT"
    base_model
    all_tasks
    teach
    fine_tune
    evaluate sft "$OUT/sft" test 2
    for run in $RUNS; do
        reinforce "$run"
        "$TRAIN" scripts/merge_adapter.py "$(last "$run")" --base "$OUT/sft" --out "$OUT/$run/merged"
        evaluate "$run" "$OUT/$run/merged" test 2
    done
    evaluate base "$OUT/base" test 1
    report
}

report() {
    "$TRAIN" scripts/evaluate.py compare "$OUT/test/sft" $(for run in base $RUNS; do echo "$OUT/test/$run"; done)
    "$TRAIN" scripts/plot.py $(for run in $RUNS; do echo "$OUT/$run/log.jsonl"; done) --out "$OUT/learning.png"
    say "plot in $OUT/learning.png"
}

smoke() {
    OUT=${OUT%/}/smoke
    rm -rf "$OUT"
    mkdir -p "$OUT"
    base_model
    tasks rl 24 2107 train
    serve "$OUT/base"
    "$TRAIN" scripts/train.py "$EXPERIMENT/multi.yaml" model="$OUT/base" output_dir="$OUT/run" weight_folder="$OUT/weights" \
        engine_url="http://127.0.0.1:$ENGINE_PORT" servers="[http://127.0.0.1:$SERVER_PORT]" $SMOKE_SETTINGS
    "$TRAIN" scripts/check_training.py "$OUT/run" --steps 3 --harnesses "$HARNESSES" --own-reward
}

"${1:-everything}"
