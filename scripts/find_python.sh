#!/usr/bin/env bash
# Prints a Python of one version that can make environments: PYTHON where it is one, else one from PATH or pyenv.
#
#   scripts/find_python.sh 3.11
set -euo pipefail

VERSION=${1:?usage: find_python.sh VERSION}

# A name on PATH may be a shim that runs nothing, and Debian splits ensurepip off, so every candidate is asked.
fits() { "$1" -c "import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$VERSION')" 2>/dev/null; }

for candidate in ${PYTHON:-} "python$VERSION" {"${PYENV_ROOT:-}","${HOME:-}/.pyenv"}/versions/"$VERSION".*/bin/python \
    /usr/bin/"python$VERSION" /usr/local/bin/"python$VERSION"; do
    if fits "$candidate"; then
        echo "$candidate"
        exit 0
    fi
done
echo "find_python.sh: no Python $VERSION found; set PYTHON to one" >&2
exit 1
