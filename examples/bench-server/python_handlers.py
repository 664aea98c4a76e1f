"""What a call of a Python handler costs: the server and its workers apart, one, two and four workers.

    python3 examples/bench-server/python_handlers.py target/release/owlclaw-mcp [--python PATH] [--calls N]

Over stdio, with a relaxed ledger and limits that nothing reaches. `--python` names another interpreter,
such as that of an environment with the real package `owlclaw`. Linux only: it reads /proc. It prints the
rows of docs/performance.md; nothing here passes or fails.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

APP = '''
from owlclaw import OwlClaw

app = OwlClaw("bench")
app.mount_skills("skills")


@app.handler("echo")
async def echo(message: str) -> str:
    """Gives it back."""
    return message


@app.handler("add")
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b
'''

CONFIG = """
mcp_server:
  app: app.py
  workers: {{count: {workers}}}
  resources: {{skills_dir: ./skills}}
  governance:
    default_quota:
      {{monthly_budget: 1000000, max_calls_per_minute: 1000000000, max_calls_per_day: 1000000000, max_cost_per_call: 1000}}
  ledger: {{path: ./data/ledger.db, durability: relaxed}}
  logging: {{level: WARNING}}
"""

TICK = 1e6 / os.sysconf("SC_CLK_TCK")
ECHO = ("echo", {"message": "x" * 32})
ADD = ("add", {"a": 1, "b": 2})


class Session:
    """A server and one client on its pipes."""

    def __init__(self, binary, home, python):
        self.started = time.perf_counter()
        command = [binary, "start", "--config", str(home / "mcp-server.yaml")]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,
            env={**os.environ, "MCP_SERVER_PYTHON": python},
        )
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.write(self.request(0, "initialize", hello))
        self.process.stdout.readline()
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.write(self.request(1, "tools/list", {}))
        assert b'"echo"' in self.process.stdout.readline()
        self.start_seconds = time.perf_counter() - self.started

    @staticmethod
    def request(id, method, params):
        return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n"

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def calls(self, tool, arguments, count, in_flight):
        """Seconds for `count` calls, and the latencies in seconds where there is one in flight."""
        line = self.request("NUMBER", "tools/call", {"name": tool, "arguments": arguments})
        before_id, after_id = line.split(b'"NUMBER"')
        # No two with the same id in flight.
        lines = [b"%s%d%s" % (before_id, number, after_id) for number in range(count)]
        begun, latencies = time.perf_counter(), []
        sent = received = 0
        output = self.process.stdout
        while received < count:
            room = min(in_flight - (sent - received), count - sent)
            if room:
                self.write(b"".join(lines[sent : sent + room]))
                sent += room
            before = time.perf_counter()
            data = output.readline() if in_flight == 1 else output.read1(1 << 20)
            if in_flight == 1:
                latencies.append(time.perf_counter() - before)
            assert b'"error"' not in data and b'"isError":true' not in data, data[:500]
            received += data.count(b"\n")
        return time.perf_counter() - begun, latencies

    def tree(self):
        """The server, and all processes below it."""
        parents = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                pass
        below, found = [self.process.pid], []
        while below:
            one = below.pop()
            children = [pid for pid, parent in parents.items() if parent == one]
            found += children
            below += children
        return self.process.pid, sorted(found)

    def end(self):
        self.process.stdin.close()
        self.process.wait(20)


def cpu(pid):
    """Microseconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def private_mib(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def measure(session, call, count, in_flight):
    session.calls(*call, count // 10, in_flight)
    server, workers = session.tree()
    before = cpu(server), sum(map(cpu, workers))
    seconds, latencies = session.calls(*call, count, in_flight)
    spent = cpu(server) - before[0], sum(map(cpu, workers)) - before[1]
    p50 = f"{statistics.median(latencies) * 1e6:.0f} µs" if latencies else ""
    return [f"{count / seconds:,.0f}", f"{spent[0] / count:.1f}", f"{spent[1] / count:.1f}", p50]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--calls", type=int, default=40_000)
    parser.add_argument("--starts", type=int, default=7)
    arguments = parser.parse_args()
    binary = str(arguments.binary.resolve())
    print("| workers | handler | in flight | calls/s | server, µs | workers, µs | p50 |\n|--:|---|--:|--:|--:|--:|--:|")
    memory = {}
    for workers in (1, 2, 4):
        with tempfile.TemporaryDirectory() as name:
            home = Path(name)
            (home / "skills").mkdir()
            (home / "app.py").write_text(APP)
            (home / "mcp-server.yaml").write_text(CONFIG.format(workers=workers))
            session = Session(binary, home, arguments.python)
            for label, call, in_flight, share in (
                ("async", ECHO, 1, 4),
                ("async", ECHO, 64, 1),
                ("sync", ADD, 1, 4),
                ("sync", ADD, 64, 1),
            ):
                row = measure(session, call, arguments.calls // share, in_flight)
                print("|", " | ".join([str(workers), label, str(in_flight), *row]), "|", flush=True)
            server, others = session.tree()
            memory[workers] = private_mib(server), [private_mib(pid) for pid in others]
            session.end()
            if workers == 2:
                starts = []
                for _ in range(arguments.starts):
                    session = Session(binary, home, arguments.python)
                    starts.append(session.start_seconds * 1000)
                    session.end()
    print(f"\nspawn to the answer of tools/list, ms: {statistics.median(starts):.0f} ({min(starts):.0f}–{max(starts):.0f})")
    for workers, (server, others) in memory.items():
        processes = ", ".join(f"{one:.1f}" for one in others)
        print(f"private memory, MiB, {workers} workers: server {server:.1f}, its processes {processes}")


if __name__ == "__main__":
    main()
