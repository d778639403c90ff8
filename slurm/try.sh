#!/usr/bin/env bash
# Tries the batch scripts under a real Slurm of one node, which it starts and stops itself, with a fake engine, a scripted
# policy and a trainer without a model. Needs root and the programs of Debian's packages slurm-wlm and munge.
#
#   slurm/try.sh       a minute or two; prints every job's end, and says at last whether all is as it should be
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
    echo "try.sh: $*" >&2
    exit 2
}
[ "$(id -u)" = 0 ] || refuse "a Slurm of its own needs root"
for program in slurmctld slurmd sbatch munge munged; do
    command -v "$program" >/dev/null || refuse "there is no $program: apt-get install slurm-wlm munge"
done
[ -x .venv/bin/openenv-harbor ] || refuse "there is no .venv: make setup"

folder=$(mktemp -d /tmp/slurm-try.XXXXXX)
chmod 755 "$folder"
mkdir "$folder/spool" "$folder/state" "$folder/local"
export SLURM_CONF=$folder/slurm.conf
munged=
if ! munge -n >/dev/null 2>&1; then
    mkdir -p /run/munge
    chown munge /run/munge
    runuser -u munge -- munged --force --pid-file /run/munge/try.pid
    munged=/run/munge/try.pid
fi
stop() {
    [ ! -e "$folder/slurmctld.pid" ] || scancel --user=root --quiet 2>/dev/null || true
    for daemon in "$folder"/slurmd.pid "$folder"/slurmctld.pid ${munged:+"$munged"}; do
        [ ! -e "$daemon" ] || kill "$(cat "$daemon")" 2>/dev/null || true
    done
    # Each takes its file away as the last thing it does.
    for ((tries = 0; tries < 100; tries++)); do
        compgen -G "$folder/*.pid" >/dev/null || break
        sleep 0.2
    done
}
trap stop EXIT

free_port() { .venv/bin/python -IS -c 'import socket; s = socket.create_server(("", 0)); print(s.getsockname()[1])'; }
cat >"$SLURM_CONF" <<CONF
ClusterName=try
SlurmctldHost=$(hostname)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmdSpoolDir=$folder/spool
StateSaveLocation=$folder/state
NodeName=$(hostname) CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
slurmctld
slurmd

tokenizer=$(.venv/bin/python -c 'from tests.tokenizers import qwen3_dir; print(qwen3_dir())')
.venv/bin/python -c '
import pathlib, sys
from tests.tiny_harness import write_task
write_task(pathlib.Path(sys.argv[1]))' "$folder/tasks/one"
printf 'harnesses: [tests.tiny_harness:TINY]\nsplit: all\n' >"$folder/train.yaml"

export RUN=$folder/run TMPDIR=$folder/local PYTHONPATH=$PWD HOST=127.0.0.1 POLL=0.5 SERVERS=2 MODEL=$tokenizer
export DATASET=$folder/tasks SPLIT=all HARNESS=tests.tiny_harness:TINY
export ENGINE_GRES='' TRAIN_GRES='' ENGINE_CPUS=1 SERVER_CPUS=1 TRAIN_CPUS=1 EVALUATE_CPUS=1
export ENGINE_COMMAND="$PWD/.venv/bin/python tests/data/slurm/fake_engine.py \$PORT"
export ENGINE_FLAGS="--engine scripted:tests/tiny_policy.py:write_42 --tokenizer $tokenizer"
export TRAIN_COMMAND="$PWD/.venv/bin/python tests/data/slurm/rollouts_trainer.py"
slurm/submit.sh "$folder/train.yaml"
while [ -n "$(squeue --noheader)" ]; do sleep 1; done

wrong=
ended() {
    local id found
    id=$(awk -v name="$1" '$1 == name {print $2}' "$RUN/jobs")
    found=$(scontrol show job "$id" | grep -o 'JobState=[A-Z]*' | sort -u)
    echo "$1 $found"
    [ "$found" = "JobState=$2" ] || wrong+=" $1"
}
ended engine CANCELLED
ended server CANCELLED
ended train COMPLETED
ended evaluate COMPLETED
ended stop COMPLETED
grep -h '^reward' "$RUN"/logs/train-*.log || wrong+=" training"
grep -h 'reward=' "$RUN"/logs/evaluate-*.log || wrong+=" evaluation"
[ "$(grep -hc '^reward 1.0 turns 2' "$RUN"/logs/train-*.log)" = 2 ] || wrong+=" rollouts"
[ -z "$(ls "$TMPDIR")" ] || wrong+=" files-left"
! compgen -G "$RUN/*.url" >/dev/null || wrong+=" addresses-left"
! grep -rqF "$(cat "$RUN/admin.key")" "$RUN/logs" "$folder"/*.log || wrong+=" key-in-a-log"
if [ -n "$wrong" ]; then
    echo "try.sh: not as it should be:$wrong; everything is in $folder" >&2
    exit 1
fi
stop
trap - EXIT
rm -rf "$folder"
echo "everything is as it should be"
