#!/usr/bin/env python3
"""How long one client's calls take while another client runs sixteen slow synchronous calls at a time.

    tests/clients/bystander.py BINARY [--seconds S] [--most RATIO]

Starts the server with a small application over HTTP, measures the calls of a client alone, and then beside the slow
calls of another one, three times in turn. Prints percentiles and their ratio; with `--most` a larger ratio of the
medians of p99 is an error. The figures mean something on a machine that does nothing else.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

APPLICATION = '''
import time
from owlclaw import OwlClaw

app = OwlClaw("bystander")
app.mount_skills("skills")

@app.handler("slow")
def slow() -> str:
    """Takes half a second."""
    time.sleep(0.5)
    return "done"

@app.handler("quick")
def quick(n: int) -> int:
    """Takes no time."""
    return n + 1

@app.handler("quick-later")
async def quick_later(n: int) -> int:
    """Takes no time."""
    return n + 1
'''

CONFIGURATION = """
mcp_server:
  app: app.py
  python: {python}
  transport: http
  http: {{port: 0}}
  ledger: {{path: ledger.db}}
  governance:
    default_quota: {{max_calls_per_minute: 1000000, max_calls_per_day: 10000000, monthly_budget: 1000000}}
"""

SLOW_CALLS = 16


class Client:
    """A client of the revision 2026-07-28, on one connection."""

    def __init__(self, port, name):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "X-MCP-Client-ID": name,
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
        }

    def call(self, tool, arguments):
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "bystander", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        self.connection.request("POST", "/mcp", body, {**self.headers, "Mcp-Name": tool})
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200 or '"error"' in text or '"isError":true' in text:
            raise SystemExit("a call failed: %d %s" % (answer.status, text))


def measured(port, tool, seconds):
    client = Client(port, "bystander")
    for n in range(50):
        client.call(tool, {"n": n})
    taken, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        client.call(tool, {"n": len(taken)})
        taken.append((time.perf_counter() - began) * 1000)
        # A client that thinks: one that never waits measures how much of a core it gets.
        time.sleep(0.002)
    taken.sort()
    return taken[len(taken) // 2], taken[int(len(taken) * 0.99)], len(taken)


class SlowCalls:
    """The calls of the other client, as long as this is entered."""

    def __init__(self, port):
        self.port = port
        self.done = threading.Event()

    def __enter__(self):
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(SLOW_CALLS)]
        for one in self.threads:
            one.start()
        time.sleep(0.5)

    def __exit__(self, *_):
        self.done.set()
        for one in self.threads:
            one.join()

    def _run(self):
        client = Client(self.port, "slow")
        while not self.done.is_set():
            client.call("slow", {})


def started(binary, home):
    (home / "app.py").write_text(APPLICATION)
    (home / "skills").mkdir()
    (home / "mcp-server.yaml").write_text(CONFIGURATION.format(python=sys.executable))
    log = open(home / "server.log", "w+")
    server = subprocess.Popen([binary, "start", "--config", "mcp-server.yaml"], cwd=home, stderr=log, stdin=subprocess.DEVNULL)
    for _ in range(600):
        for line in (home / "server.log").read_text().splitlines():
            if '"url"' in line and '"serving"' in line:
                return server, int(json.loads(line)["url"].rsplit(":", 1)[1].split("/")[0])
        if server.poll() is not None:
            break
        time.sleep(0.05)
    server.kill()
    raise SystemExit("the server did not start: %s" % (home / "server.log").read_text()[-2000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--most", type=float)
    arguments = parser.parse_args()
    too_much = False
    with tempfile.TemporaryDirectory(prefix="owlclaw-bystander-") as directory:
        server, port = started(arguments.binary, Path(directory))
        try:
            for tool in ("quick", "quick-later"):
                alone, beside = [], []
                for _ in range(3):
                    alone.append(measured(port, tool, arguments.seconds))
                    with SlowCalls(port):
                        beside.append(measured(port, tool, arguments.seconds))
                (p50, p99), (p50_beside, p99_beside) = (
                    [statistics.median(one[at] for one in rounds) for at in (0, 1)] for rounds in (alone, beside)
                )
                calls = sum(one[2] for one in alone + beside)
                ratio = p99_beside / p99
                print(
                    "%-12s alone p50 %.2f ms, p99 %.2f ms; beside %d slow calls p50 %.2f ms, p99 %.2f ms: %.1f times (%d calls)"
                    % (tool, p50, p99, SLOW_CALLS, p50_beside, p99_beside, ratio, calls)
                )
                too_much = too_much or (arguments.most is not None and ratio > arguments.most)
        finally:
            server.terminate()
            server.wait(30)
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
