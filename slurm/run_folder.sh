# What the jobs of one run share: its folder RUN, where each service says its address, and how a job ends when it is told
# to. Sourced by the batch scripts beside it, from the checkout's root.
#
#   RUN            the run's folder, on a file system all nodes see
#   SERVER_ENV     environment of engine clients, servers and evaluations (.venv)
#   SERVED_MODEL   the model's name at the engine (policy)
#   TOKENIZER      folder or id of the tokenizer (MODEL)
#   ENGINE_FLAGS   in place of the run's engine: what servers and evaluations are told of theirs, such as
#                  "--llm-url http://HOST:PORT --model NAME"
#   HOST, ADDRESS  where services listen (0.0.0.0), and by what name other nodes reach this one (its host name)
#   OPENENV_HARBOR_SCRATCH   where sandboxes write: a local disk of the node (a folder that goes with the job)
#   WAIT, POLL     seconds to wait for a service (1800), and between two looks (2)

RUN=$(realpath -m "${RUN:?name the folder of the run, which all nodes see: RUN=/shared/runs/first}")
SERVER_ENV=${SERVER_ENV:-.venv}
SERVED_MODEL=${SERVED_MODEL:-policy}
HOST=${HOST:-0.0.0.0}
case $HOST in 0.0.0.0) ADDRESS=${ADDRESS:-$(hostname)} ;; *) ADDRESS=${ADDRESS:-$HOST} ;; esac
WAIT=${WAIT:-1800}
POLL=${POLL:-2}
PYTHON=$SERVER_ENV/bin/python

# Keys, sessions and what agents wrote are nobody else's to read.
umask 077
mkdir -p "$RUN/logs"
# What a job leaves on its node goes with it.
LOCAL=$(mktemp -d "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/openenv-harbor.XXXXXX")
export TMPDIR=$LOCAL
# A sandbox's files lie on an overlay, for which a network file system is no ground.
export OPENENV_HARBOR_SCRATCH=${OPENENV_HARBOR_SCRATCH:-$LOCAL/sandboxes}

ME=${SLURM_JOB_NAME:-$(basename "$0" .sbatch)}
CHILD='' TARGET='' TOLD='' PUBLISHED=''

say() { echo "$ME: $*" >&2; }

refuse() {
    say "$*"
    exit 2
}

leave() {
    [ -z "$PUBLISHED" ] || rm -f "$PUBLISHED"
    if [ -d "$LOCAL/sandboxes" ]; then
        # Sandboxes that were killed with their owner name their cgroups in their folder.
        "$PYTHON" -c '
import sys, pathlib, harbor_env.sandboxes.leftovers as leftovers
leftovers.sweep(pathlib.Path(sys.argv[1]))' "$LOCAL/sandboxes" || true
    fi
    rm -rf --one-file-system "$LOCAL"
}
trap leave EXIT

# Slurm tells every process of a job that is cancelled or preempted, and a second word would cut short how a batch of
# rollouts ends. That a job's time is nearly up (USR1), it tells this script alone, and Ctrl-C is no word of Slurm's.
told() {
    TOLD=$1
    [ -n "$CHILD" ] || exit 143
    if [ "$1" != TERM ] || [ -z "${SLURM_JOB_ID:-}" ]; then
        kill -TERM -- "$TARGET" 2>/dev/null || true
    fi
}
trap 'told TERM' TERM
trap 'told INT' INT
trap 'told USR1' USR1

# start one|all COMMAND...: run it; `one` hears of the end itself, `all` is a command none of whose parts tells the others.
start() {
    local who=$1
    shift
    setsid "$@" &
    CHILD=$!
    case $who in one) TARGET=$CHILD ;; all) TARGET=-$CHILD ;; esac
}

# Wait for what was started, and return its status. A signal ends `wait` before the process has ended.
attend() {
    local status=0
    wait "$CHILD" || status=$?
    while kill -0 "$CHILD" 2>/dev/null; do
        status=0
        wait "$CHILD" || status=$?
    done
    if [ "$status" -gt 128 ]; then
        local again=0
        wait "$CHILD" 2>/dev/null || again=$?
        [ "$again" = 127 ] || status=$again
    fi
    while kill -0 -- "$TARGET" 2>/dev/null; do sleep 0.2; done
    return "$status"
}

# Whether anything answers at a URL, and not that it is still loading. No proxy leads to a node of the cluster.
answers() {
    "$PYTHON" -IS -c '
import sys, urllib.error, urllib.request
try:
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=10)
except urllib.error.HTTPError as error:
    sys.exit(error.code >= 500)
except OSError:
    sys.exit(1)' "$1"
}

free_port() {
    "$PYTHON" -IS -c 'import socket; s = socket.create_server(("", 0)); print(s.getsockname()[1])'
}

# wait_for NAME: until that service of the run answers; its address is then in URL.
wait_for() {
    local file=$RUN/$1.url failed=$RUN/$1.failed end=$((SECONDS + WAIT))
    say "waiting for $1"
    while :; do
        URL=$(cat "$file" 2>/dev/null || true)
        if [ -n "$URL" ] && answers "$URL/health"; then
            break
        elif [ -e "$failed" ]; then
            say "$1 $(cat "$failed")"
            exit 1
        elif [ "$SECONDS" -ge "$end" ]; then
            say "$1 did not answer within $WAIT s (${URL:-no $file}): is its job running? See $RUN/logs, or give WAIT=SECONDS."
            exit 1
        fi
        sleep "$POLL"
    done
    local host=${URL#*://}
    export no_proxy="${no_proxy:+$no_proxy,}${host%:*}"
    export NO_PROXY=$no_proxy
}

# serve NAME URL COMMAND...: run a service until it is told to end. That is its success; ending by itself is none.
serve() {
    local name=$1 url=$2 end=$((SECONDS + WAIT)) status=0
    shift 2
    rm -f "$RUN/$name.url" "$RUN/$name.failed"
    start one "$@"
    while kill -0 "$CHILD" 2>/dev/null && ! answers "$url/health"; do
        if [ "$SECONDS" -ge "$end" ]; then
            TOLD=late
            kill -TERM "$CHILD" 2>/dev/null || true
            break
        fi
        sleep "$POLL"
    done
    if [ -z "$TOLD" ] && kill -0 "$CHILD" 2>/dev/null; then
        PUBLISHED=$RUN/$name.url
        echo "$url" >"$LOCAL/url"
        cp "$LOCAL/url" "$PUBLISHED.new"
        mv "$PUBLISHED.new" "$PUBLISHED"
        say "answers at $url"
    fi
    attend || status=$?
    case $TOLD in
    '') echo "ended with status $status; its log says why." >"$RUN/$name.failed" ;;
    late) echo "did not answer at $url within $WAIT s; its log says why." >"$RUN/$name.failed" ;;
    *) exit 0 ;;
    esac
    say "$(cat "$RUN/$name.failed")"
    exit $((status == 0 ? 1 : status))
}

# The key of the run's servers, made by whichever job comes first. It goes by the environment, never by a command line.
with_admin_key() {
    local made
    if [ ! -s "$RUN/admin.key" ]; then
        made=$(mktemp "$RUN/.key.XXXXXX")
        od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$made"
        ln "$made" "$RUN/admin.key" 2>/dev/null || true
        rm -f "$made"
    fi
    OPENENV_HARBOR_ADMIN_KEY=$(cat "$RUN/admin.key")
    export OPENENV_HARBOR_ADMIN_KEY
}

# engine_flags MODEL_NAME: in FLAGS, how a server or a batch of rollouts is told of its engine.
# shellcheck disable=SC2034
engine_flags() {
    if [ -n "${ENGINE_FLAGS:-}" ]; then
        read -ra FLAGS <<<"$ENGINE_FLAGS"
        return
    fi
    local tokenizer=${TOKENIZER:-${MODEL:-}}
    [ -n "$tokenizer" ] || refuse "give MODEL, the model's folder or id, or TOKENIZER"
    wait_for engine
    FLAGS=(--llm-url "$URL" --model "$1" --tokenizer "$tokenizer")
}
