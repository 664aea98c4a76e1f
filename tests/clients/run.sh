#!/usr/bin/env bash
# Runs the official MCP clients against a server binary.
#
#   tests/clients/run.sh BINARY [--config FILE] [--fixture FILE] [--jobs N]
#       [--only NAME]... [--transport T]... [--era E]... [--what W]...
#
# NAME is a client: python-2, python-1, typescript-2, typescript-1, inspector. T is stdio,
# http, sse or websocket. E is legacy, modern or auto, where the Inspector finds out. W is calls, resumed,
# where clients come back over (legacy) http for answers, restarted, where the server is started
# again under them, tasks, resources, which are completed, followed, searched and written to, tour, a tool of every kind, desk, questions, prompts and pictures, governance, where calls are confirmed, or
# operating, where clients are told apart by keys, tokens and certificates. All of them by default.
# The fixture is the conformance-server, by default the one beside BINARY: its tools hang up,
# ask and fail. N runs go on at once, by default one more than there are processors.
# Installs what it needs below ${OWLCLAW_TEST_CACHE:-<repository>/.cache}.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

if [ $# -lt 1 ]; then
    sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
binary=$(realpath -s "$1")
shift

# shellcheck source=install.sh
. "$here/install.sh"
install_node "$cache"
install_python_venv "$cache/clients/python-2" "$here/python/requirements.txt"
install_python_venv "$cache/clients/python-1" "$here/python/requirements-v1.txt"
install_npm_package "$cache/clients/typescript" "$here/typescript"
install_npm_package "$cache/clients/inspector" "$here/inspector"
install_npm_package "$cache/clients/provider" "$here/provider"

exec python3 "$here/check.py" --binary "$binary" --cache "$cache/clients" "$@"
