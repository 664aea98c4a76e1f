#!/usr/bin/env bash
# Has LangChain and CrewAI call tools of a server by the package python/owlclaw_tools; see check.py.
#
#   tests/clients/tools/run.sh BINARY
#
# Not a part of each run: by hand and by schedule, since CrewAI installs some 1.1 GB below
# ${OWLCLAW_TEST_CACHE:-<repository>/.cache}, once.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

if [ $# -ne 1 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
binary=$(realpath -s "$1")
# shellcheck source=../install.sh
. "$here/../install.sh"
mkdir -p "$cache"
install_python_venv "$cache/owlclaw-tools" "$here/requirements.txt"
exec "$cache/owlclaw-tools/bin/python" "$here/check.py" "$binary"
