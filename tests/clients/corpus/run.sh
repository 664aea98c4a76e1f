#!/usr/bin/env bash
# Compares 140 Python handlers, called through a server binary, with what Python itself makes of them.
#
#   tests/clients/corpus/run.sh BINARY [--table]
#   CORPUS_PYTHON=PYTHON tests/clients/corpus/run.sh fastmcp [--table]
#
# PYTHON has what handlers.py imports; by default it is that of FastMCP's examples, where nothing may be skipped. With
# `fastmcp` it needs FastMCP, which is compared in the place of the server.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${OWLCLAW_TEST_CACHE:-$here/../../../.cache}

if [ $# -lt 1 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi

if [ -z "${CORPUS_PYTHON:-}" ]; then
    # shellcheck source=../install.sh
    . "$here/../install.sh"
    install_python_venv "$cache/clients/fastmcp-examples" "$here/../fastmcp/requirements.txt"
    CORPUS_PYTHON=$cache/clients/fastmcp-examples/bin/python
    set -- "$@" --all
fi
exec python3 "$here/check.py" "$CORPUS_PYTHON" "$@"
