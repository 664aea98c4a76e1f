#!/usr/bin/env bash
# Has a server, workers and a Temporal development server carry tasks out, and kills each of them meanwhile.
#
#   tests/temporal/run.sh PROGRAM [--plain PROGRAM_WITHOUT_THE_FEATURE]
#
# PROGRAM is owlclaw-mcp, built with `--features temporal`. The Temporal server is installed below
# ${OWLCLAW_TEST_CACHE:-<repository>/.cache}; PostgreSQL must be installed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
program=$(realpath "${1:?usage: tests/temporal/run.sh PROGRAM}")
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

# shellcheck source=../clients/install.sh
. "$repository/tests/clients/install.sh"
install_python_venv "$cache/temporal" "$here/requirements.txt"
exec python3 "$here/run.py" "$program" "$cache/temporal/bin/temporal" "${@:2}"
