"""Bytecode for the Python programs a layer brings: a read-only layer could never be given it later."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from harbor_env.sandboxes.sandbox import Command, Completed, Sandbox

_TIMEOUT_S = 900.0
_COMPILE = '"$1" -m compileall -q -j 0 "$2" >/dev/null 2>&1 || true'


async def compile_python(sandbox: Sandbox, env: Mapping[str, str]) -> list[Completed]:
    """Compile every Python library folder that was written in `sandbox`, with the interpreter it belongs to."""
    done = []
    for folder, interpreter in _libraries(sandbox):
        command = Command(("bash", "-c", _COMPILE, "compile", interpreter, folder), env)
        done.append(await sandbox.run(command, timeout=_TIMEOUT_S))
    return done


def _libraries(sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    """(folder inside, interpreter inside) of each `lib/pythonX.Y` that has packages or a standard library."""
    for index, point in enumerate(sandbox.points):
        upper = sandbox.folder / f"upper{index}"
        for path, names, files in os.walk(upper):
            folder = Path(path)
            if "site-packages" in names or "os.py" in files:
                names.clear()
                inside = Path(point) / folder.relative_to(upper)
                yield str(inside), _interpreter(folder, inside)


def _interpreter(folder: Path, inside: Path) -> str:
    """The `bin/python3` beside the library folder, else whichever comes first on the PATH."""
    beside = folder.parent.parent / "bin/python3"
    return str(inside.parent.parent / "bin/python3") if os.path.lexists(beside) else "python3"
