#!/usr/bin/env python3
"""Time until a gateway of which nothing is stored offers the tools of all of its 200 upstreams, and until one that was
started again does.

    cargo build --release -p owlclaw-mcp
    tests/gateway-cost/start.py target/release/owlclaw-mcp

All upstreams are in this process, at paths of one port; each has ten tools. Prints both times, and the processor
time that the gateway has used until then. The machine must have nothing else to do.
"""

import argparse
import http.client
import http.server
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time

TOOLS = 10
WORDS = "Looks for orders of a customer, by number, time, state or amount, and lists what it finds, the last first. " * 3


def tool(upstream, at):
    texts = {"type": "string", "description": WORDS[:120]}
    schema = {"type": "object", "properties": {f"p{it}": texts for it in range(4)}}
    return {"name": f"t{at}", "description": f"{upstream} {at}: {WORDS}", "inputSchema": schema}


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.answer(405)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            return self.answer(202)
        method, upstream = message["method"], self.path.split("/")[1]
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": upstream, "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": [tool(upstream, at) for at in range(TOOLS)]}
        else:
            error = {"code": -32601, "message": "no such method"}
            return self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True

    def handle_error(self, *_):
        """A gateway that ends leaves its connections."""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def count_of_tools(connection):
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    params, count = {}, 0
    while True:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
        connection.request("POST", "/mcp", body, {**headers, "MCP-Protocol-Version": "2025-11-25"})
        result = json.loads(connection.getresponse().read())["result"]
        count += len(result["tools"])
        if "nextCursor" not in result:
            return count
        params = {"cursor": result["nextCursor"]}


def started(program, work, upstreams, log):
    """Starts a gateway and waits until all tools are on offer."""
    port = free_port()
    command = [program, "start", "--config", work / "mcp-server.yaml", "--transport", "http", "--port", str(port)]
    began = time.monotonic()
    gateway = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    try:
        seen = None
        while time.monotonic() < began + 120:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            try:
                count = count_of_tools(connection)
            except ConnectionRefusedError:
                time.sleep(0.02)
                continue
            seen = seen or time.monotonic() - began
            if count == TOOLS * upstreams:
                with open(f"/proc/{gateway.pid}/stat") as stat:
                    used = stat.read().rsplit(")", 1)[1].split()[11:13]
                used = sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
                return time.monotonic() - began, seen, used
            time.sleep(0.05)
        raise SystemExit(f"{count} tools after 120 s")
    finally:
        gateway.terminate()
        gateway.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gateway", type=os.path.abspath)
    parser.add_argument("--upstreams", type=int, default=200)
    given = parser.parse_args()
    server = Server(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    with tempfile.TemporaryDirectory() as work, open(os.path.join(work, "log"), "w") as log:
        work = pathlib.Path(work)
        settings = {
            "ledger": {"path": str(work / "ledger.db")},
            "logging": {"level": "error"},
            "upstreams": {
                f"up{at}": {"url": f"http://127.0.0.1:{port}/up{at}/mcp"} for at in range(given.upstreams)
            },
        }
        (work / "mcp-server.yaml").write_text(json.dumps({"mcp_server": settings}))
        for what in ("first start", "next start"):
            took, seen, used = started(given.gateway, work, given.upstreams, log)
            print(
                f"{what}, {given.upstreams} upstreams: lists answered after {seen:.2f} s, "
                f"all tools on offer after {took:.2f} s, {used:.2f} s of processor time"
            )


main()
