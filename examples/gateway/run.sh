#!/usr/bin/env bash
# Runs the gateway with the shop and three servers of others, and calls a tool of each.
#
#   examples/gateway/run.sh DIRECTORY
#
# DIRECTORY has the program owlclaw-mcp, such as target/debug. The servers of others are installed below
# ${OWLCLAW_TEST_CACHE:-<repository>/.cache}, as tests/clients/servers does it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
bin=$(realpath "${1:?usage: examples/gateway/run.sh DIRECTORY}")
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}
clients=$repository/tests/clients

# shellcheck source=../../tests/clients/install.sh
. "$clients/install.sh"
install_node "$cache"
install_python_venv "$cache/clients/servers-python" "$clients/servers/requirements.txt"
install_npm_package "$cache/clients/servers" "$clients/servers"
# Behind all others: `python3` is the machine's.
export PATH=$PATH:$cache/clients/servers/node_modules/.bin:$cache/clients/servers-python/bin

work=$(mktemp -d)
started=()
end() {
    for process in "${started[@]}"; do kill "$process" 2> /dev/null || true; done
    wait
    rm -rf "$work"
}
trap end EXIT
cp -r "$here" "$here/../retail" "$work"
cd "$work/gateway"

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# until_open PORT: something listens there.
until_open() {
    for _ in $(seq 600); do
        (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null && return
        sleep 0.1
    done
    printf 'nothing listens on port %s\n' "$1" >&2
    return 1
}

remote=$(free_port)
PORT=$remote mcp-server-everything streamableHttp > "$work/remote.log" 2>&1 &
started+=($!)
until_open "$remote"
export REMOTE_URL=http://127.0.0.1:$remote/mcp OPERATOR_TOKEN=a-token-of-operators-for-this-example-alone

port=$(free_port)
"$bin/owlclaw-mcp" start --port "$port" 2> "$work/server.log" &
started+=($!)
until_open "$port"
url=http://127.0.0.1:$port

# says TEXT WORD...: the command prints the text.
says() {
    local wanted=$1 text
    shift
    text=$("$bin/owlclaw-mcp" "$@" 2>&1 || true)
    if ! grep -qF -- "$wanted" <<< "$text"; then
        printf 'not said: %s\nowlclaw-mcp %s\n%s\n' "$wanted" "$*" "$text" >&2
        tail -5 "$work/server.log" >&2
        return 1
    fi
}
call() {
    local wanted=$1 client=$2 tool=$3 arguments=$4
    says "$wanted" tools call "$tool" --args "$arguments" --as "$client" --url "$url/mcp"
}

for upstream in time files remote; do
    says "$upstream is ready" upstream recheck "$upstream" --url "$url"
done
call '"low"' warehouse inventory-check '{"sku": "TEA-002"}'
call 'Asia/Tokyo' warehouse mcp_time_get_current_time '{"timezone": "Asia/Tokyo"}'
call 'shelf A-02' warehouse mcp_files_read_text_file '{"path": "where.txt"}'
call '42' manager mcp_remote_get-sum '{"a": 19, "b": 23}'
# What is denied, what needs a person, and what is not offered at all.
call 'permission' warehouse mcp_files_write_file '{"path": "new.txt", "content": "x"}'
call 'confirmation' manager mcp_files_write_file '{"path": "new.txt", "content": "x"}'
call 'unknown tool' manager mcp_files_move_file '{"source": "where.txt", "destination": "gone.txt"}'
call 'unknown tool' warehouse mcp_remote_echo '{"message": "x"}'
says 'upstreams.files.deny' upstream why files --url "$url"
says 'upstream time' ledger query --format json
says 'sound' ledger verify
printf 'the shop and three upstreams were called through one endpoint\n'
