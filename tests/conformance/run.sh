#!/usr/bin/env bash
# Runs the official conformance suites against a server.
#
#   tests/conformance/run.sh PORT_OR_URL
#   tests/conformance/run.sh [--transport http|stdio]... [--through GATEWAY] BINARY [ARGUMENT]...
#   tests/conformance/run.sh --through GATEWAY typescript
#
# The second form starts BINARY: over http on a free loopback port, where "{port}" in its
# arguments is replaced, and they are `--port {port}` if there are none; over stdio as it is,
# behind stdio_bridge.py. Both by default, and http alone if an argument has "{port}". With
# --through, the program GATEWAY, an owlclaw-mcp, stands before it and is what the suite of
# the two newest revisions asks. The third form asks servers by the official TypeScript SDK, by themselves and
# through GATEWAY, and fails if more fails there. The suites are installed below
# ${OWLCLAW_TEST_CACHE:-<repository>/.cache}; what they saw is kept there too.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

if [ $# -lt 1 ]; then
    sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi

# shellcheck source=../clients/install.sh
. "$here/../clients/install.sh"
install_node "$cache"
install_npm_package "$cache/conformance/suite-0.2" "$here/suite-0.2"
install_npm_package "$cache/conformance/suite-0.1" "$here/suite-0.1"

if [ "${!#}" = typescript ]; then
    install_npm_package "$cache/clients/servers" "$here/../clients/servers"
fi

exec python3 "$here/check.py" --cache "$cache/conformance" "$@"
