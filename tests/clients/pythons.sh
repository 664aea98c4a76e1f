#!/usr/bin/env bash
# Runs the tests of the Python side with several interpreters.
#
#   tests/clients/pythons.sh [--binary BINARY] PYTHON...
#
# Each gets an environment of its own below ${OWLCLAW_TEST_CACHE:-<repository>/.cache}, with pydantic, attrs,
# jsonschema, setuptools and mypy where there are such for it. With a binary it also runs the comparison of handlers
# (corpus/run.sh) with each. Takes some minutes for each, and is not part of .ci/run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
cache=${OWLCLAW_TEST_CACHE:-$repository/.cache}

binary=
if [ "${1:-}" = --binary ]; then
    binary=$(realpath -s "$2")
    shift 2
fi
if [ $# -eq 0 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi

failed=0
for python in "$@"; do
    version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
    directory=$cache/pythons/$version
    if [ ! -x "$directory/bin/python" ]; then
        "$python" -m venv "$directory"
        "$directory/bin/python" -m pip install --quiet --disable-pip-version-check \
            pydantic attrs jsonschema mypy 'setuptools<80' httpx requests
    fi
    echo "== Python $version"
    (cd "$repository" && "$directory/bin/python" -m unittest discover -s crates/adapter-tools/python/tests) || failed=1
    if [ -n "$binary" ]; then
        CORPUS_PYTHON=$directory/bin/python "$here/corpus/run.sh" "$binary" || failed=1
    fi
done
exit $failed
