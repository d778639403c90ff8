#!/usr/bin/env bash
# Submits a training run: engine, servers, the trainer over them, an evaluation after it, and an end to the services.
#
#   RUN=/shared/runs/first MODEL=Qwen/Qwen3-8B SERVERS=2 PARTITION=gpu slurm/submit.sh train.yaml [training.max_steps=300 ...]
#   RUN=/shared/runs/first MODEL=Qwen/Qwen3-8B slurm/submit.sh         goes on with what that run was given before
#
#   RUN, MODEL         as the batch scripts have them; every variable of theirs can be set here
#   SERVERS            how many environment servers, each a job (1)
#   EVALUATE, ADAPTER  no: leave the evaluation out (yes); what it evaluates (latest)
#   PARTITION          of all jobs (the cluster's default)
#   ENGINE_GRES, TRAIN_GRES          GPUs of engine and trainer (gpu:1; "" for none)
#   ENGINE_CPUS, SERVER_CPUS, TRAIN_CPUS, EVALUATE_CPUS   processors (8)
#   ENGINE_SBATCH, SERVER_SBATCH, TRAIN_SBATCH, EVALUATE_SBATCH   more options of a job: "--time=24:00:00 --nodes=2"
#
# Prints one line per job: what it is, and its id.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUN MODEL SERVERS=${SERVERS:-1} REPO=$PWD
RUN=$(realpath -m "${RUN:?name the folder of the run, which all nodes see: RUN=/shared/runs/first}")
: "${MODEL:?name the model: MODEL=FOLDER_OR_ID}"

refuse() {
    echo "submit.sh: $*" >&2
    exit 2
}
command -v sbatch >/dev/null || refuse "there is no sbatch here: run this where jobs are submitted"
[[ $SERVERS =~ ^[1-9][0-9]*$ ]] || refuse "SERVERS is '$SERVERS', which is no number of servers"
if compgen -G "$RUN/*.url" >/dev/null; then
    refuse "$RUN has services (its *.url files): submit slurm/train.sbatch alone, or cancel their jobs; remove the files if those are gone"
fi

umask 077
mkdir -p "$RUN/logs"
rm -f "$RUN"/*.failed
if [ $# -gt 0 ]; then
    [ -e "$1" ] || refuse "there is no $1: give a YAML file for scripts/train.py"
    [ "$1" -ef "$RUN/train.yaml" ] || cp "$1" "$RUN/train.yaml"
    shift
    printf '%s\n' "$@" | sed '/^$/d' >"$RUN/settings"
fi
[ -e "$RUN/train.yaml" ] || refuse "give the YAML file for scripts/train.py: $RUN has none yet"
export CONFIG=$RUN/train.yaml ADAPTER=${ADAPTER:-latest}

# A chain that could not be submitted to its end has nobody to end its services.
submitted=
trap '[ -z "$submitted" ] || scancel $submitted || true' EXIT

# submit NAME GRES CPUS MORE OPTION...: the job's id is then in ID.
submit() {
    local name=$1 gres=$2 cpus=$3 more
    read -ra more <<<"$4"
    shift 4
    ID=$(sbatch --parsable --job-name="$name" --export=ALL --output="$RUN/logs/%x-%A.log" ${PARTITION:+--partition="$PARTITION"} \
        ${gres:+--gres="$gres"} --cpus-per-task="$cpus" "${more[@]}" "$@")
    ID=${ID%%;*}
    submitted+=" $ID"
    echo "$name $ID" | tee -a "$RUN/jobs"
}

submit engine "${ENGINE_GRES-gpu:1}" "${ENGINE_CPUS:-8}" "${ENGINE_SBATCH:-}" slurm/engine.sbatch
services=$ID
submit server '' "${SERVER_CPUS:-8}" "${SERVER_SBATCH:-}" --dependency="after:$services" --array="0-$((SERVERS - 1))" \
    --output="$RUN/logs/%x-%A-%a.log" slurm/server.sbatch
services=$services:$ID
submit train "${TRAIN_GRES-gpu:1}" "${TRAIN_CPUS:-8}" "${TRAIN_SBATCH:-}" --dependency="after:$services" slurm/train.sbatch
users=$ID
if [ "${EVALUATE:-yes}" != no ]; then
    submit evaluate '' "${EVALUATE_CPUS:-8}" "${EVALUATE_SBATCH:-}" --dependency="afterok:$users" --kill-on-invalid-dep=yes \
        slurm/evaluate.sbatch
    users=$users:$ID
fi
# However they end: an engine nobody uses would keep its GPUs.
submit stop '' 1 '' --dependency="afterany:$users" --wrap="scancel ${services//:/ }"
submitted=
