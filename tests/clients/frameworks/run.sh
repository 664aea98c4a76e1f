#!/usr/bin/env bash
# Has agents of frameworks call a server's tools and checks what their model reads; see check.py.
#
#   tests/clients/frameworks/run.sh BINARY [--transport http|stdio] [NAME]...
#
# NAME is a file of requirements/ without its end, or a directory there; all of them by default. Not a part of
# each run: by hand and by schedule, since it installs gigabytes below ${OWLCLAW_TEST_CACHE:-<repository>/.cache},
# once. requirements/NAME.txt is `pip freeze` of what was tried last, requirements/NAME/ has npm's lock file.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}/frameworks

if [ $# -lt 1 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
binary=$(realpath -s "$1")
shift
options=()
while [ "${1:-}" = --transport ]; do
    options+=("$1" "$2")
    shift 2
done
if [ $# -eq 0 ]; then
    mapfile -t names < <(cd "$here/requirements" && ls -d -- * | sed 's/\.txt$//')
    set -- "${names[@]}"
fi

# shellcheck source=../install.sh
. "$here/../install.sh"
mkdir -p "$cache"
# The application's handlers have arguments and results of all types.
python=${cache%/frameworks}/clients/fastmcp-examples
install_python_venv "$python" "$here/../fastmcp/requirements.txt"
for name in "$@"; do
    if [ -d "$here/requirements/$name" ]; then
        install_node "${cache%/frameworks}"
        if [ -f "$here/requirements/$name/package-lock.json" ]; then
            install_npm_package "$cache/$name" "$here/requirements/$name"
        elif ! is_installed_from "$cache/$name" "$here/requirements/$name/package.json"; then
            # It brings along all it needs; npm refuses a lock file that lacks its parts for other systems.
            echo "installing $name" >&2
            rm -rf "${cache:?}/$name"
            mkdir -p "$cache/$name"
            cp "$here/requirements/$name/package.json" "$cache/$name/"
            (cd "$cache/$name" && npm install --omit=optional --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
            cp "$here/requirements/$name/package.json" "$cache/$name/installed-from"
        fi
        cp "$here"/drivers/*.mjs "$cache/$name/"
        continue
    fi
    install_python_venv "$cache/$name" "$here/requirements/$name.txt"
done

exec python3 "$here/check.py" --binary "$binary" --cache "$cache" --python "$python/bin/python" "${options[@]}" "$@"
