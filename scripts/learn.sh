#!/usr/bin/env bash
# A model of 135M parameters learns to use two coding agents, on a CPU: teacher, SFT, reinforcement learning in both
# harnesses and in one, and what each is worth on tasks nobody trained on. Hours; what is there already is kept, so a
# run that was stopped goes on.
#
#   scripts/learn.sh                 everything, below .cache/learn
#   scripts/learn.sh smoke           three steps of reinforcement learning on the model as it comes, in minutes
#   scripts/learn.sh report          compare and plot what is there
#   OUT=DIR EXPERIMENT=experiments/smollm2 ENGINE_PORT=8000 SERVER_PORT=8001
#
# Needs `make trainer`. On a machine with other work to do vLLM slows down many times.
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

engine=; server=; working=
end() { # PROCESS ...
    for process in "$@"; do kill "$process" 2>/dev/null || true; done
    for process in "$@"; do wait "$process" 2>/dev/null || true; done
}
stop() {
    end $server $engine
    engine=; server=
}
trap 'end $working; stop' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { echo "learn: $*"; }

work() { # COMMAND: in the background, so that a signal ends it too
    "$@" &
    working=$!
    wait "$working"
    working=
}

answers() { "$BIN/python" -c "import urllib.request; urllib.request.urlopen('$1/health', timeout=5)" 2>/dev/null; }

wait_for() { # NAME PROCESS URL LOG
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

vacant() { # PORT: what answers there already would be taken for one's own, and trained
    ! answers "http://127.0.0.1:$1" || { say "something answers at port $1: end it, or give ENGINE_PORT and SERVER_PORT" >&2; exit 1; }
}

alone() { # one run in a folder at a time
    mkdir -p "$OUT"
    exec 9>"$OUT/.lock"
    flock -n 9 || { say "another run writes to $OUT: end it, or give another OUT" >&2; exit 1; }
}

# A trainer that waits for its turn makes what was sampled stale; an engine that does, everybody wait.
serve() { # MODEL: an engine with it, and an environment server on that
    stop
    vacant "$ENGINE_PORT"
    vacant "$SERVER_PORT"
    say "serving $1"
    env "${ENGINE_ENV[@]}" ENGINE="$ENGINE" nice -n 5 scripts/serve_vllm.sh "$1" "$ENGINE_PORT" \
        --weight-transfer-config '{"backend": "safetensors_file"}' --max-num-seqs 32 --block-size 32 >"$OUT/engine.log" 2>&1 &
    engine=$!
    wait_for engine "$engine" "http://127.0.0.1:$ENGINE_PORT" "$OUT/engine.log"
    nice -n 10 "$BIN/openenv-harbor" serve --llm-url "http://127.0.0.1:$ENGINE_PORT" --model policy --tokenizer "$1" \
        --dataset "$OUT/tasks/rl" --port "$SERVER_PORT" --max-concurrent-envs 32 --data "$OUT/server-data" >"$OUT/server.log" 2>&1 &
    server=$!
    wait_for server "$server" "http://127.0.0.1:$SERVER_PORT" "$OUT/server.log"
}

tasks() { # NAME COUNT SEED SPLIT
    [ ! -d "$OUT/tasks/$1" ] || return 0
    rm -rf "$OUT/tasks.part"
    "$BIN/python" scripts/make_tasks.py --families "$FAMILIES" --count "$2" --seed "$3" --split "$4" --out "$OUT/tasks.part" >/dev/null
    mkdir -p "$(dirname "$OUT/tasks/$1")"
    mv "$OUT/tasks.part" "$OUT/tasks/$1"
}

apart() { # NAME OTHER ...: without the tasks of NAME that are worded like one of OTHER, file names and all
    local name=$1 others
    shift
    others=$(for other in "$@"; do find "$OUT/tasks/$other" -name instruction.md -exec md5sum {} +; done | cut -d ' ' -f 1)
    [ -n "$others" ] || return 0
    find "$OUT/tasks/$name" -name instruction.md -exec md5sum {} + | { grep -F "$others" || true; } | while read -r _ file; do
        rm -r "$(dirname "$file")"
    done
}

all_tasks() {
    [ ! -e "$OUT/tasks/.done" ] || return 0
    tasks sft "$SFT_TASKS" 2101 train
    tasks rl/train "$RL_TASKS" 2102 train
    tasks rl/heldout "$RL_TASKS" 2108 heldout
    tasks dev/train "$DEV_TASKS" 2103 train
    tasks dev/heldout "$DEV_TASKS" 2104 heldout
    tasks test/train "$TEST_TASKS" 2109 train
    tasks test/heldout "$TEST_TASKS" 2110 heldout
    apart test sft
    apart dev sft test
    apart rl test dev
    touch "$OUT/tasks/.done"
}

base_model() {
    local template gguf
    [ ! -e "$OUT/base/tokenizer.json" ] || return 0
    # SmolLM2's own template shows the model no tools; TRL brings one that writes the same turns with tools in them.
    template=$("$TRAIN" -c 'from importlib.util import find_spec as f; print(f("trl").submodule_search_locations[0])')
    gguf=$("$BIN/python" -c 'from harbor_env.embedded import embedded_model; print(embedded_model(print))')
    "$TRAIN" scripts/make_smollm2.py "$OUT/base" --gguf "$gguf" \
        --chat-template "$template/chat_templates/qwen3_instruct_2507.jinja"
}

teach() {
    [ ! -e "$OUT/sft.jsonl" ] || return 0
    TEACHER_TASKS="$OUT/tasks/sft" work "$BIN/openenv-harbor" rollout --engine scripted:scripts/teacher.py:solve \
        --tokenizer "$OUT/base" --dataset "$OUT/tasks/sft" -n "$SFT_TASKS" --harness "$HARNESSES" --rotate every --warm \
        --agent-kwargs "$EXPERIMENT/agents.yaml" --concurrency 4 --out "$OUT/teacher"
    "$TRAIN" scripts/collect_sft.py "$OUT/teacher" --out "$OUT/sft.part"
    mv "$OUT/sft.part" "$OUT/sft.jsonl"
}

fine_tune() {
    [ ! -e "$OUT/sft/tokenizer.json" ] || return 0
    work env "${TRAINER_ENV[@]}" "$TRAIN" scripts/train_sft.py "$OUT/sft.jsonl" --model "$OUT/base" --out "$OUT/sft" "${SFT_OPTIONS[@]}"
}

evaluate() { # NAME MODEL TASKS SAMPLES
    local done="$OUT/$3/$1/.done"
    [ ! -e "$done" ] || return 0
    serve "$2"
    work "$BIN/python" scripts/evaluate.py run --name "$1" --out "$OUT/$3" --dataset "$OUT/tasks/$3" \
        --harness "$HARNESSES" --samples "$4" -- --llm-url "http://127.0.0.1:$ENGINE_PORT" --model policy --tokenizer "$2" \
        --agent-kwargs "$EXPERIMENT/agents.yaml" --warm --concurrency 24 --retries 2 "${LIMITS[@]}"
    touch "$done"
}

checkpoints() { # NAME: the whole ones, in their order
    for one in "$OUT/$1"/checkpoint-*/trainer_state.json; do
        [ ! -e "$one" ] || dirname "$one"
    done | sort -V
}

reinforce() { # NAME: trained to its end, and what that left in order
    local config="$EXPERIMENT/train.yaml" harnesses=${TRAINED_IN[$1]} steps=${STEPS[$1]} resume=
    [ ! -e "$OUT/$1/.checked" ] || return 0
    if [ "$(basename "$(checkpoints "$1" | tail -n 1)")" != "checkpoint-$steps" ]; then
        [ -z "$(checkpoints "$1")" ] || resume=--resume
        serve "$OUT/sft"
        say "reinforcement learning: $1 ($harnesses), $steps steps"
        train "$config" model="$OUT/sft" output_dir="$OUT/$1" harnesses="[$harnesses]" training.max_steps="$steps" $resume
    fi
    "$TRAIN" scripts/check_training.py "$OUT/$1" --steps "$steps" --harnesses "$harnesses"
    touch "$OUT/$1/.checked"
}

train() { # CONFIG SETTING ...
    work env "${TRAINER_ENV[@]}" "$TRAIN" scripts/train.py "$@" weight_folder="$OUT/weights" \
        agent_kwargs="$EXPERIMENT/agents.yaml" engine_url="http://127.0.0.1:$ENGINE_PORT" \
        servers="[http://127.0.0.1:$SERVER_PORT]"
}

merged() { # RUN CHECKPOINT: a model folder of it
    local out="$OUT/$1/merged-${2##*-}"
    [ -e "$out/tokenizer.json" ] || "$TRAIN" scripts/merge_adapter.py "$2" --base "$OUT/sft" --out "$out" >&2
    echo "$out"
}

everything() {
    local saved
    alone
    base_model
    all_tasks
    teach
    fine_tune
    evaluate sft "$OUT/sft" dev 1
    evaluate sft "$OUT/sft" test 2
    for run in $RUNS; do
        reinforce "$run"
        evaluate "$run" "$(merged "$run" "$(checkpoints "$run" | tail -n 1)")" test 2
    done
    evaluate "$BESIDE_SINGLE" "$(merged multi "$OUT/multi/checkpoint-${BESIDE_SINGLE##*-}")" test 2
    evaluate base "$OUT/base" dev 1
    for run in $RUNS; do
        mapfile -t saved < <(checkpoints "$run")
        for checkpoint in "${saved[@]}"; do
            evaluate "$run-${checkpoint##*-}" "$(merged "$run" "$checkpoint")" dev 1
        done
    done
    report
}

report() {
    local tested=() saved=() steps=() logs=()
    for run in $RUNS; do
        tested+=("$OUT/test/$run")
        logs+=("$OUT/$run/log.jsonl")
        mapfile -t saved < <(checkpoints "$run")
        for one in "${saved[@]}"; do steps+=("$OUT/dev/$run-${one##*-}"); done
    done
    say "on the test tasks, against the start"
    "$TRAIN" scripts/evaluate.py compare "$OUT/test/sft" "${tested[@]}"
    say "trained in one harness, beside as many steps in both, cell by cell"
    "$TRAIN" scripts/evaluate.py compare --cells "$OUT/test/$BESIDE_SINGLE" "$OUT/test/single"
    say "on the dev tasks: the model as it comes, the start, every checkpoint"
    "$TRAIN" scripts/evaluate.py compare "$OUT/dev/sft" "$OUT/dev/base" "${steps[@]}"
    for run in $RUNS; do "$TRAIN" scripts/training_time.py "$OUT/$run"; done
    "$TRAIN" scripts/plot.py "${logs[@]}" --out "$OUT/learning.png"
    say "plot in $OUT/learning.png"
}

smoke() {
    OUT=${OUT%/}/smoke
    alone
    rm -rf "${OUT:?}"/*
    base_model
    tasks rl 24 2107 train
    serve "$OUT/base"
    train "$EXPERIMENT/train.yaml" model="$OUT/base" output_dir="$OUT/run" "${SMOKE_SETTINGS[@]}"
    "$TRAIN" scripts/check_training.py "$OUT/run" --steps 3 --harnesses "$HARNESSES" --own-reward
}

case ${1:-everything} in
everything | smoke | report) "${1:-everything}" ;;
*) say "there is no $1: everything, smoke or report" >&2; exit 2 ;;
esac
