#!/usr/bin/env bash
# Runs the client side of the official conformance suite.
#
#   tests/conformance/client.sh CLIENT
#
# CLIENT is the program of examples/conformance-client. Every scenario must pass with at least the checks
# that tests/conformance/client-checks.txt has for it: a client that does nothing passes some scenarios. The
# suite is installed below ${OWLCLAW_TEST_CACHE:-<repository>/.cache}; what it saw is kept there too.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

if [ $# -ne 1 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
client=$(realpath "$1")

# shellcheck source=../clients/install.sh
. "$here/../clients/install.sh"
install_node "$cache"
install_npm_package "$cache/conformance/suite-0.2" "$here/suite-0.2"

exec python3 "$here/client.py" --cache "$cache/conformance" "$client"
