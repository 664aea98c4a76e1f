#!/usr/bin/env bash
# Runs the official examples of MCP Apps behind the gateway, with a host and pages of the official package.
#
#   tests/clients/apps/run.sh BINARY
#
# Installs the examples below ${OWLCLAW_TEST_CACHE:-<repository>/.cache}.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

if [ $# -ne 1 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
binary=$(realpath -s "$1")

# shellcheck source=../install.sh
. "$here/../install.sh"
install_node "$cache"
install_npm_package "$cache/clients/apps" "$here"
exec node "$cache/clients/apps/host.mjs" "$binary"
