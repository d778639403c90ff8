#!/usr/bin/env bash
# Makes an environment in DIR that trains on a CPU: vLLM (which TRL wants beside it), TRL, PEFT, and this project's
# client side.
#
#   scripts/trainer_env.sh .cache/engine
#
# It is the engine's environment with more in it, so one DIR can serve and train. Running it again does nothing.
set -euo pipefail

TRL=1.16.0
DIR=${1:?usage: trainer_env.sh DIR}
HERE=$(cd "$(dirname "$0")/.." && pwd)

"$HERE/scripts/engine_env.sh" "$DIR"
if [ -e "$DIR/.complete-trl-$TRL" ]; then
    exit 0
fi
pip() { "$DIR/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
pip "trl==$TRL" "peft>=0.18" accelerate matplotlib
pip -e "$HERE/envs/harbor_env"
pip --no-deps -e "$HERE"
"$DIR/bin/python" -c 'import trl, peft; print("trl", trl.__version__, "peft", peft.__version__)'
touch "$DIR/.complete-trl-$TRL"
