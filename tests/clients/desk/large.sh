#!/usr/bin/env bash
# Measures the views of the desk in a real browser (Debian's Chromium) with many tools, upstreams and entries.
#
#   tests/clients/desk/large.sh BINARY [UPSTREAMS [CALLS]]
#
# 200 upstreams with 50 tools each, and 500,000 calls (a million entries) unless said otherwise; with a release build
# this takes two minutes. Fails if the median of a view is over 100 ms.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

if [ $# -lt 1 ] || [ $# -gt 3 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
binary=$(realpath -s "$1")

# shellcheck source=../install.sh
. "$here/../install.sh"
install_npm_package "$cache/clients/desk" "$here"
exec node "$cache/clients/desk/large.mjs" "$binary" "${2:-200}" "${3:-500000}"
