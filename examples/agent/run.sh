#!/usr/bin/env bash
# Runs the agent with two servers, by its script and by a model that a process here plays.
#
#   examples/agent/run.sh DIRECTORY
#
# DIRECTORY has the programs agent, native-tool and owlclaw-mcp, such as target/debug.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(realpath "${1:?usage: examples/agent/run.sh DIRECTORY}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$here/../retail" "$work/retail"
shop="env MCP_CLIENT_ID=warehouse $bin/owlclaw-mcp start --config $work/retail/mcp-server.yaml"

# has TEXT PATTERN...: each pattern is found in the text.
has() {
    local text=$1 pattern
    shift
    for pattern in "$@"; do
        if ! grep -qF -- "$pattern" <<< "$text"; then
            printf 'the agent did not print %s:\n%s\n' "$pattern" "$text" >&2
            return 1
        fi
    done
}

question="Is there enough of TEA-002, and what would forty more cost?"
has "$(env -u OPENAI_BASE_URL "$bin/agent" "$question" "$shop" "$bin/native-tool")" \
    '-> inventory-check {"sku":"TEA-002"}' '"low"' '"total":18000' 'Forty more cost'

# The model does what a line of the prompt says.
model="import sys; sys.path.insert(0, sys.argv[1]); from model import Model
print(Model().url, flush=True); sys.stdin.read()"
coproc python3 -c "$model" "$here/../../tests/clients/frameworks"
read -r OPENAI_BASE_URL <&"${COPROC[0]}"
export OPENAI_BASE_URL
has "$("$bin/agent" 'CALL#one add {"a": 19, "b": 23}' "$shop" "$bin/native-tool")" '<- 42' 'done'
