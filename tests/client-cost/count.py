#!/usr/bin/env python3
"""Instructions of one call, of this client and of the official Rust SDK's, counted by callgrind.

    cargo build --release -p bench-server
    cargo build --release --manifest-path tests/client-cost/rmcp/Cargo.toml
    tests/client-cost/count.py target/release/bench-server \
        target/release/bench-client tests/client-cost/rmcp/target/release/rmcp-calls

`.ci/run` counts this client alone, and fails if a call takes more than half of what `rmcp.txt` has for it: figures of
the release that Cargo.toml in `rmcp` pins, from such a run as above.

    tests/client-cost/count.py --beside tests/client-cost/rmcp.txt target/release/bench-server target/release/bench-client

The server is `bench-server` without a ledger. A count is the difference between a long and a short run of the
client, divided by the calls that the long one has more; one call is answered before the next is sent. Only
user-space instructions of the client's process count. `--top N` prints the functions that take most.
"""

import argparse
import pathlib
import re
import socket
import subprocess
import tempfile
import time

SHORT, LONG = 200, 1200
# Enough for a comparison with figures that are kept.
QUICK = 100, 400


def run(program, version, number, server, keep):
    out = pathlib.Path(keep) / f"{pathlib.Path(program).name}-{number}.out"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, version, str(number), *server]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ended.stderr}")
    return int(re.search(r"Collected : (\d+)", ended.stderr)[1]), out


def count(program, version, server, top, calls):
    few, many = calls
    with tempfile.TemporaryDirectory() as keep:
        short, _ = run(program, version, few, server, keep)
        long, out = run(program, version, many, server, keep)
        if top:
            said = subprocess.run(["callgrind_annotate", str(out)], capture_output=True, text=True, check=False)
            lines = [line for line in said.stdout.splitlines() if re.match(r" *[\d,]+ \(", line)]
            print("\n".join(line[:200] for line in lines[: top + 1]))
    return (long - short) / (many - few)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("server")
    arguments.add_argument("clients", nargs="+")
    arguments.add_argument("--beside", type=pathlib.Path)
    arguments.add_argument("--top", type=int, default=0)
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    lines = given.beside.read_text().splitlines() if given.beside else []
    beside = {tuple(words[:2]): float(words[2]) for words in map(str.split, lines) if words and words[0] != "#"}
    failed = False
    calls = QUICK if beside else (SHORT, LONG)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    http = subprocess.Popen([given.server, "http", "--port", str(port), "--ledger", "none"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        for transport, server in [
            ("stdio", [given.server, "stdio", "--ledger", "none"]),
            ("http", [f"http://127.0.0.1:{port}/mcp"]),
        ]:
            for version in ["2025-11-25", "2026-07-28"]:
                if given.only not in f"{transport} {version}":
                    continue
                counts = [count(client, version, server, given.top, calls) for client in given.clients]
                names = [f"{pathlib.Path(client).name} {number:,.0f}" for client, number in zip(given.clients, counts)]
                if (other := beside.get((transport, version))) is not None:
                    counts.append(other)
                    names.append(f"{given.beside.stem} {other:,.0f}")
                    failed |= counts[0] > other / 2
                share = f", {counts[0] / counts[-1]:.2f} of it" if 1 < len(counts) else ""
                print(f"{transport:6}{version}  {', '.join(names)}{share}", flush=True)
    finally:
        http.terminate()
        http.wait(60)
    if failed:
        raise SystemExit("FAILED: a call takes more than half")


main()
