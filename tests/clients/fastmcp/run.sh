#!/usr/bin/env bash
# Runs FastMCP's own example servers, with the import changed and nothing else, against a server binary.
#
#   tests/clients/fastmcp/run.sh BINARY
#
# The examples come from FastMCP's source distribution, of a fixed version and digest, into
# ${OWLCLAW_TEST_CACHE:-<repository>/.cache}; so does what they import.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${OWLCLAW_TEST_CACHE:-$here/../../../.cache}
version=2.14.0
digest=c1f487b36a3e4b043dbf3330e588830047df2e06f8ef0920d62dfb34d0905727

if [ $# -ne 1 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
binary=$(realpath -s "$1")

# shellcheck source=../install.sh
. "$here/../install.sh"
install_python_venv "$cache/clients/python-2" "$here/../python/requirements.txt"
install_python_venv "$cache/clients/fastmcp-examples" "$here/requirements.txt"
source=$cache/clients/fastmcp-$version
if [ ! -d "$source/examples" ]; then
    echo "fetching FastMCP $version" >&2
    mkdir -p "$source"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary fastmcp --dest "$source" "fastmcp==$version" >&2
    echo "$digest  $source/fastmcp-$version.tar.gz" | sha256sum --check --quiet >&2
    tar -xzf "$source/fastmcp-$version.tar.gz" -C "$source" --strip-components=1 "fastmcp-$version/examples"
fi
exec "$cache/clients/python-2/bin/python" "$here/check.py" "$binary" "$source/examples" "$cache/clients/fastmcp-examples/bin/python"
