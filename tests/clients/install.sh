# Sourced by the test scripts: installs pinned test tools into a cache directory, once.
# shellcheck shell=bash

# The official suites and the Inspector need Node 22; many machines have an older one.
NODE_VERSION=22.23.3

# Puts a Node of at least version 22 first in PATH. The package that holds the bare
# executable is used, since npm does not run install scripts everywhere.
install_node() {
    local cache=$1 architecture directory
    if [ "$(node -p 'Number(process.versions.node.split(".")[0]) >= 22' 2>/dev/null)" = true ]; then
        return
    fi
    case "$(uname -m)" in
        x86_64) architecture=x64 ;;
        aarch64) architecture=arm64 ;;
        *) echo "no Node $NODE_VERSION is known for $(uname -m); put one into PATH" >&2; return 1 ;;
    esac
    directory=$cache/node-$NODE_VERSION
    if [ ! -x "$directory/bin/node" ]; then
        echo "installing Node $NODE_VERSION" >&2
        rm -rf "$directory"
        mkdir -p "$directory"
        (cd "$directory" && echo '{"private": true}' > package.json &&
            npm install --no-audit --no-fund --loglevel=error "node-linux-$architecture@$NODE_VERSION" >&2)
        ln -s "node_modules/node-linux-$architecture/bin" "$directory/bin"
    fi
    export PATH="$directory/bin:$PATH"
    node --version > /dev/null
}

# Whether DIRECTORY was completely installed from FILE as it is now.
is_installed_from() {
    local directory=$1 file=$2
    cmp -s "$file" "$directory/installed-from"
}

# A virtual environment in DIRECTORY with the packages of REQUIREMENTS.
install_python_venv() {
    local directory=$1 requirements=$2
    if is_installed_from "$directory" "$requirements"; then
        return
    fi
    echo "installing $(basename "$directory")" >&2
    rm -rf "$directory"
    python3 -m venv "$directory"
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$requirements" >&2
    cp "$requirements" "$directory/installed-from"
}

# The packages of SOURCE/package-lock.json in DIRECTORY, and SOURCE's own scripts beside
# them, where they find node_modules.
install_npm_package() {
    local directory=$1 source=$2
    if ! is_installed_from "$directory" "$source/package-lock.json"; then
        echo "installing $(basename "$directory")" >&2
        rm -rf "$directory"
        mkdir -p "$directory"
        cp "$source/package.json" "$source/package-lock.json" "$directory/"
        (cd "$directory" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
        cp "$source/package-lock.json" "$directory/installed-from"
    fi
    find "$source" -maxdepth 1 -name '*.mjs' -exec cp {} "$directory/" \;
}
