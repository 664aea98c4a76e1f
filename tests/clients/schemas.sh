#!/usr/bin/env bash
# Has every form of schema there is compiled by Ajv and listed by the official TypeScript SDK 1.x.
#
#   tests/clients/schemas.sh BINARY
#
# Installs what it needs below ${OWLCLAW_TEST_CACHE:-<repository>/.cache}.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${OWLCLAW_TEST_CACHE:-$here/../../.cache}
binary=$(realpath -s "$1")

# shellcheck source=install.sh
. "$here/install.sh"
install_node "$cache"
install_python_venv "$cache/clients/python-2" "$here/python/requirements.txt"
install_npm_package "$cache/clients/typescript" "$here/typescript"

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cp -r "$here/schemas/." "$directory"
# From elsewhere, as clients start servers.
cd /
MCP_SERVER_LOGGING__LEVEL=WARNING PATH="$cache/clients/python-2/bin:$PATH" MCP_CLIENT_ID=schemas node "$cache/clients/typescript/schemas.mjs" \
    "$binary" start --transport stdio --config "$directory/mcp-server.yaml"
