#!/usr/bin/env bash
# Uses the desk in a real browser (Debian's Chromium): every view with the shop's data and an upstream that means
# no good, approvals, both themes, a narrow window, and a server that goes away. Signs people in at oidc-provider, looks
# at tasks of two servers over one PostgreSQL, and at the gateway example: its upstreams, pins, secrets and credentials.
# Has the API hang, fail and answer by halves, sessions end and pages of others try, signs in with a certificate over TLS,
# and leaves the live view open for an hour, sixty times as fast.
#
#   tests/clients/desk/run.sh BINARY [SCREENSHOTS]
#
# Installs what it drives the browser with below ${OWLCLAW_TEST_CACHE:-<repository>/.cache}, and writes the pictures
# of docs/desk.md into the directory SCREENSHOTS.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
binary=$(realpath -s "$1")
screenshots=${2:+$(realpath -s "$2")}

# shellcheck source=../install.sh
. "$here/../install.sh"
install_npm_package "$cache/clients/desk" "$here"
install_npm_package "$cache/clients/provider" "$here/../provider"
node "$cache/clients/desk/sign_in.mjs" "$binary" "$cache/clients/provider/provider.mjs"
install_python_venv "$cache/clients/servers-python" "$repository/tests/clients/servers/requirements.txt"
install_npm_package "$cache/clients/servers" "$repository/tests/clients/servers"
# Behind all others: `python3` is the machine's.
PATH=$PATH:$cache/clients/servers/node_modules/.bin:$cache/clients/servers-python/bin \
    node "$cache/clients/desk/gateway.mjs" "$binary" "$repository" ${screenshots:+"$screenshots"}
node "$cache/clients/desk/tasks.mjs" "$binary" "$repository" ${screenshots:+"$screenshots"}
node "$cache/clients/desk/edges.mjs" "$binary" "$repository"
node "$cache/clients/desk/live.mjs" "$binary" "$repository"
exec node "$cache/clients/desk/drive.mjs" "$binary" "$repository" ${screenshots:+"$screenshots"}
