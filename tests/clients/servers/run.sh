#!/usr/bin/env bash
# Tries `owlclaw-mcp client` with servers that others have written, and the official clients with these behind the gateway.
#
#   tests/clients/servers/run.sh BINARY [--only TEXT]... [--jobs N]
#
# Installs the servers below ${OWLCLAW_TEST_CACHE:-<repository>/.cache}.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

if [ $# -lt 1 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
binary=$(realpath -s "$1")
shift

# shellcheck source=../install.sh
. "$here/../install.sh"
install_node "$cache"
install_python_venv "$cache/clients/python-1" "$here/../python/requirements-v1.txt"
install_python_venv "$cache/clients/servers-python" "$here/requirements.txt"
install_npm_package "$cache/clients/servers" "$here"

# The one by the Rust SDK is built from its sources.
rmcp=$cache/clients/rmcp
if ! cat "$here"/rmcp/Cargo.* "$here/rmcp/src/main.rs" | cmp -s - "$rmcp/installed-from"; then
    echo "building rmcp-tried" >&2
    rm -rf "$rmcp"
    cargo build --quiet --locked --manifest-path "$here/rmcp/Cargo.toml" --target-dir "$rmcp/target"
    mv "$rmcp/target/debug/rmcp-tried" "$rmcp/"
    rm -rf "$rmcp/target"
    cat "$here"/rmcp/Cargo.* "$here/rmcp/src/main.rs" > "$rmcp/installed-from"
fi

install_npm_package "$cache/clients/provider" "$here/../provider"
check=(python3 "$here/check.py" --binary "$binary" --cache "$cache/clients" "$@")
if [ $# -ne 0 ]; then
    exec "${check[@]}"
fi
install_python_venv "$cache/clients/python-2" "$here/../python/requirements.txt"
install_npm_package "$cache/clients/typescript" "$here/../typescript"
# It waits for tokens to end most of its time.
python3 "$here/sign_in.py" --binary "$binary" --cache "$cache/clients" &
signing_in=$!
"${check[@]}"
python3 "$here/through.py" --binary "$binary" --cache "$cache/clients"
wait "$signing_in"
