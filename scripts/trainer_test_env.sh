#!/usr/bin/env bash
# Makes an environment in DIR in which tests/trainer runs: TRL, PEFT and torch for a CPU, pytest, and this project's
# client side. No vLLM: the tests bring a fake one.
#
#   scripts/trainer_test_env.sh .cache/trainer
#
# Takes Python 3.11, the oldest this project runs on, and where there is none the one of .venv. TORCH_INDEX as for
# engine_env.sh. Running it again on a finished DIR does nothing.
set -euo pipefail

TORCH=2.13.0
TRL=1.16.0
DIR=${1:?usage: trainer_test_env.sh DIR}
HERE=$(cd "$(dirname "$0")/.." && pwd)
STAMP=$DIR/.complete-$TORCH-$TRL

if [ -e "$STAMP" ]; then
    exit 0
fi
python=$("$HERE/scripts/find_python.sh" 3.11 2>/dev/null || echo "$HERE/.venv/bin/python")
"$python" -m venv --clear "$DIR"
pip() { "$DIR/bin/python" -m pip --disable-pip-version-check install -qq --no-compile "$@"; }
# Which build of torch there is, pip is told by its configuration; uv, which is many times faster, is not.
pip ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$TORCH"
install() { pip "$@"; }
for uv in uv "$HERE/.cache/uv/bin/uv"; do
    if "$uv" --version >/dev/null 2>&1; then
        install() { "$uv" pip install --quiet --python "$DIR/bin/python" "$@"; }
        break
    fi
done
install "trl==$TRL" "peft>=0.18" accelerate aiohttp requests pyyaml filelock -e "$HERE/envs/harbor_env" \
    "pytest>=9.2" "pytest-asyncio>=1.5" "pytest-timeout>=2.4" "hypothesis>=6.170"
install --no-deps -e "$HERE"
"$DIR/bin/python" -c 'import torch, sys; print("Python", sys.version.split()[0], "torch", torch.__version__)'
touch "$STAMP"
