#!/bin/sh
# Make .venv from uv.lock: find Python 3.12 or later, find or fetch uv, sync. Needs no other program.
#
#     scripts/setup.sh            PYTHON=/path/to/python3.12 scripts/setup.sh chooses the interpreter
set -eu
cd "$(dirname "$0")/.."
UV_WANTED="uv>=0.9"
unset VIRTUAL_ENV PYTHONHOME PYTHONPATH
export UV_PYTHON_DOWNLOADS=never
if [ -z "${HOME:-}" ]; then
    HOME="$PWD/.cache/home"
    mkdir -p "$HOME"
    export HOME
fi

say() { printf 'setup: %s\n' "$*"; }

die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# A name on PATH may be a shim that runs nothing, so every candidate is asked for its version.
fits() { "$1" -c 'import sys, venv; sys.exit(sys.version_info[:2] < (3, 12))' >/dev/null 2>&1; }

# Python 3.12 before later ones; pyenv by its variable, its usual places, and from wherever its shims are.
candidates() {
    printf '%s\n' ${PYTHON:-}
    shims=$(printf '%s' "$PATH" | tr ':' '\n' | sed -n 's,/shims/*$,,p')
    account=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f6)
    for version in 3.12 3.13 3.14; do
        printf '%s\n' "python$version"
        for root in ${PYENV_ROOT:-} "$HOME/.pyenv" "$account/.pyenv" $shims; do
            ls -d "$root/versions/$version"*/bin/python 2>/dev/null || true
        done
        ls -d "$HOME/.local/share/uv/python/cpython-$version"*/bin/python 2>/dev/null || true
        printf '%s\n' "/usr/bin/python$version" "/usr/local/bin/python$version"
    done
    printf '%s\n' python3 python
}

find_python() {
    for candidate in $(candidates); do
        if fits "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

find_uv() {
    for candidate in uv .cache/uv/bin/uv "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv"; do
        if "$candidate" --version >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# pip may be split off from the interpreter, as Debian does, or be there only inside a new venv.
fetch_uv() {
    say "fetching uv from PyPI into .cache/uv"
    "$python" -m pip install --quiet --target .cache/uv "$UV_WANTED" 2>/dev/null ||
        python3 -m pip install --quiet --target .cache/uv "$UV_WANTED" 2>/dev/null ||
        { "$python" -m venv --clear .cache/uv && .cache/uv/bin/python -m pip install --quiet "$UV_WANTED"; } ||
        die "uv could not be fetched from PyPI: install it (pip install uv) and run make again."
}

python=$(find_python) || die "no Python 3.12 or later was found: install one (apt install python3.12-venv," \
    "pyenv install 3.12 or uv python install 3.12), or name it with PYTHON=/path/to/python3.12, and run make again."
uv=$(find_uv) || { fetch_uv && uv=$(find_uv); } || die "uv was fetched but does not run: install uv and run make again."
say "$("$python" --version) at $python, $("$uv" --version)"
"$uv" sync --frozen --python "$python"
# What fetches packages at run time looks for uv on the PATH and beside its Python, which has no pip here.
command -v uv >/dev/null 2>&1 || ln -sf "$(cd "$(dirname "$uv")" && pwd)/$(basename "$uv")" .venv/bin/uv
