#!/usr/bin/env python3
"""Time of `tools/list`, and of calls, of a gateway with fifty upstreams, of which none or twenty do not answer.

    cargo build --release -p owlclaw-mcp -p bench-server
    tests/gateway-cost/many.py target/release/owlclaw-mcp target/release/bench-server

Thirty upstreams are one `bench-server`; ten more are ports on which nothing listens, and ten take connections and
never answer. Prints the median and the 99th percentile of both, and the ratio of the latter with and without those
twenty. The machine must have nothing else to do.
"""

import argparse
import http.client
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time

LIVE, DEAD, SILENT = 30, 10, 10


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def listens(port):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method, params):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        began = time.perf_counter()
        self.connection.request("POST", "/mcp", body, {**headers, "MCP-Protocol-Version": "2025-11-25"})
        answer = self.connection.getresponse().read()
        took = time.perf_counter() - began
        return json.loads(answer)["result"], 1000 * took


def measured(program, upstreams, work, calls):
    port = free_port()
    plenty = 1_000_000_000
    settings = {
        "ledger": {"path": str(work / "ledger.db")},
        "logging": {"level": "error"},
        "gateway": {"first_start_seconds": 2},
        "upstreams": upstreams,
        "governance": {"default_quota": {"max_calls_per_minute": plenty, "max_calls_per_day": plenty}},
    }
    (work / "mcp-server.yaml").write_text(json.dumps({"mcp_server": settings}))
    command = [program, "start", "--config", work / "mcp-server.yaml", "--transport", "http", "--port", str(port)]
    with open(work / "log", "w") as log:
        gateway = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    try:
        listens(port)
        client = Client(port)
        while len(client.ask("tools/list", {})[0]["tools"]) < LIVE * 2:
            time.sleep(0.1)
        lists = [client.ask("tools/list", {})[1] for _ in range(200)]
        times = []
        for at in range(calls):
            arguments = {"name": f"mcp_live{at % LIVE}_echo", "arguments": {"message": "hello"}}
            result, took = client.ask("tools/call", arguments)
            assert not result.get("isError"), result
            times.append(took)
        return lists, times
    finally:
        gateway.terminate()
        gateway.wait(60)


def shown(times):
    times = sorted(times)
    return times[len(times) // 2], times[len(times) * 99 // 100]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gateway", type=os.path.abspath)
    parser.add_argument("server", type=os.path.abspath)
    parser.add_argument("--calls", type=int, default=5000)
    given = parser.parse_args()
    port = free_port()
    server = subprocess.Popen([given.server, "http", "--port", str(port), "--ledger", "none"], stderr=subprocess.DEVNULL)
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(1024)
    try:
        listens(port)
        places = {"live": (LIVE, port), "dead": (DEAD, free_port()), "silent": (SILENT, silent.getsockname()[1])}
        p99 = []
        for kinds in (["live"], list(places)):
            upstreams = {
                f"{kind}{at}": {"url": f"http://127.0.0.1:{places[kind][1]}/mcp"}
                for kind in kinds
                for at in range(places[kind][0])
            }
            with tempfile.TemporaryDirectory() as work:
                lists, calls = measured(given.gateway, upstreams, pathlib.Path(work), given.calls)
            print(f"{len(upstreams)} upstreams, {LIVE} of which answer:")
            for what, times in (("tools/list", lists), ("tools/call", calls)):
                print("    {}: median {:.2f} ms, 99th percentile {:.2f} ms".format(what, *shown(times)))
            p99.append(shown(calls)[1])
        print(f"99th percentile of calls: {p99[1] / p99[0]:.2f} times")
    finally:
        silent.close()
        server.terminate()
        server.wait(60)


main()
