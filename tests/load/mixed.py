#!/usr/bin/env python3
"""Mixed traffic on one or more servers: what a request costs, how long it takes, and that the ledger has every call.

    cargo build --release -p owlclaw-mcp
    tests/load/mixed.py target/release/owlclaw-mcp [--nodes N] [--clients N] [--seconds S] [--processes N] [--principals N]

One server has its ledger in a file. More than one, or `--postgres`, share a PostgreSQL that this program starts (from
/usr/lib/postgresql, as `postgres` if run by root), and each client's requests go to all of them in turn, as a balancer
without stickiness sends them.

Of a hundred requests of a client 62 are calls of a quick tool, 6 of one that waits 50 ms, 2 of one that fails and 2 of one that
is denied; 10 read a resource, 8 list tools, 5 get a prompt, and 5 begin a task and ask for its result. Half of the clients speak
2026-07-28, half 2025-11-25 with a session, which they end and open anew every 200 requests. Each tenth client has a stream open
besides. Prints for each kind of request its number, median and 99th percentile; for each server CPU time of its process tree
a request and its memory; CPU time of PostgreSQL. Exits with 1 if an answer is not what it must be, or if the ledger has more
or fewer calls than were answered.
"""

import argparse
import collections
import glob
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

MIX = {"quick": 62, "slow": 6, "failing": 2, "denied": 2, "read": 10, "list": 8, "prompt": 5, "task": 5}
REQUESTS_OF_A_SESSION = 200
APPLICATION = '''
import asyncio
from owlclaw import OwlClaw

app = OwlClaw("load")
app.mount_skills("capabilities")


@app.handler("quick")
async def quick(message: str) -> dict:
    """Says what it is told."""
    return {"message": message}


@app.handler("slow")
async def slow(message: str) -> dict:
    """Says it after 50 ms."""
    await asyncio.sleep(0.05)
    return {"message": message}


@app.handler("failing")
async def failing(message: str) -> dict:
    """Fails."""
    raise ValueError("as it should")


@app.handler("denied")
async def denied(message: str) -> dict:
    """Is not for anybody here."""
    return {}
'''
SKILL = """---
name: stock
description: How stock is counted.
---
Count it.
"""
PROMPT = """---
description: Asks for a count.
arguments:
  - {name: what, required: true}
---
Count {{ what }}.
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def tree(pid):
    """A process and all that descend from it."""
    children = collections.defaultdict(list)
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = pathlib.Path(stat).read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(stat.split("/")[2]))
    found = [pid]
    for at in found:
        found += children[at]
    return found


def used(pid):
    """CPU seconds and resident bytes of a process tree."""
    seconds = resident = 0
    for at in tree(pid):
        try:
            fields = pathlib.Path(f"/proc/{at}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # Of ended children that were waited for, too: fields 14 to 17 of proc(5).
        seconds += sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
        resident += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return seconds, resident


class Database:
    """A PostgreSQL of its own."""

    def __init__(self, work):
        tools = max(glob.glob("/usr/lib/postgresql/*/bin"), default=None)
        if tools is None:
            raise SystemExit("there is no PostgreSQL below /usr/lib/postgresql; on Debian: apt install postgresql")
        self.port, self.data, self.psql = free_port(), work / "postgres", f"{tools}/psql"
        self.data.mkdir()
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        if user:
            shutil.chown(self.data, "postgres", "postgres")
        run = dict(check=True, stdout=subprocess.DEVNULL, cwd="/")
        subprocess.run([*user, f"{tools}/initdb", "-D", self.data, "-U", "owlclaw", "-A", "trust"], **run)
        settings = [f"-cport={self.port}", "-clisten_addresses=127.0.0.1", "-cunix_socket_directories="]
        command = [*user, f"{tools}/postgres", "-D", self.data, "-cmax_connections=300", *settings]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd="/")
        self.url = f"postgresql://owlclaw@127.0.0.1:{self.port}/postgres"
        listens(self.port, self.process)

    def connections(self):
        """Number of connections of servers."""
        asked = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        command = [self.psql, "-At", "-c", asked, self.url]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def listens(port, process, log=None):
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}\n{log.read_text() if log else ''}")


def configuration(work, database):
    (work / "app.py").write_text(APPLICATION)
    (work / "capabilities/warehouse/stock").mkdir(parents=True)
    (work / "capabilities/warehouse/stock/SKILL.md").write_text(SKILL)
    (work / "prompts").mkdir()
    (work / "prompts/count.md").write_text(PROMPT)
    plenty = 1_000_000_000
    settings = {
        "app": "app.py",
        "resources": {"skills_dir": "capabilities"},
        "prompts": {"dir": "prompts"},
        "logging": {"level": "WARNING"},
        "tools": {"page_size": 1000},
        "ledger": {"url": database.url} if database else {"path": "ledger.db"},
        "governance": {
            "default_quota": {"max_calls_per_minute": plenty, "max_calls_per_day": plenty},
            "default": {"tools": {"deny": ["denied"]}},
        },
    }
    path = work / "mcp-server.yaml"
    path.write_text(json.dumps({"mcp_server": settings}))
    return path


class Wrong(Exception):
    """An answer that is not what it must be."""


class Client:
    def __init__(self, number, ports, era, principals):
        self.era, self.name, self.turn = era, f"client-{number % principals}", number
        self.connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for port in ports]
        self.session, self.left, self.ids = None, 0, 0

    def post(self, method, params, name=None):
        """Status, headers and message of an answer by the next server."""
        self.turn += 1
        connection = self.connections[self.turn % len(self.connections)]
        self.ids += 1
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            message["id"] = self.ids
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.era == "modern":
            about = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": self.name, "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
            }
            params["_meta"] = {**params.get("_meta", {}), **about}
            headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
            if name:
                headers["Mcp-Name"] = name
        elif method != "initialize":
            headers |= {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": self.session}
        connection.request("POST", "/mcp", json.dumps(message), headers)
        response = connection.getresponse()
        text = response.read().decode()
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            data = [line[6:] for line in text.splitlines() if line.startswith("data: ") and line[6:].strip()]
            text = next((at for at in data if json.loads(at).get("id") == self.ids), "")
        return response, json.loads(text) if text.strip() else None

    def ask(self, method, params, name=None):
        if self.era == "legacy" and self.left == 0:
            self.open()
        self.left -= 1
        _, message = self.post(method, params, name)
        return message

    def open(self):
        self.close()
        client = {"name": self.name, "version": "1"}
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        response, _ = self.post("initialize", asked)
        self.session, self.left = response.headers["Mcp-Session-Id"], REQUESTS_OF_A_SESSION
        self.post("notifications/initialized", {})

    def close(self):
        if self.session:
            self.connections[0].request("DELETE", "/mcp", headers={"Mcp-Session-Id": self.session})
            self.connections[0].getresponse().read()

    def call(self, tool):
        arguments = {"name": tool, "arguments": {"message": str(self.ids)}}
        return self.ask("tools/call", arguments, tool)

    def do(self, kind):
        """Carries out one request of a kind; the outcome that the ledger must have, unless refusals are summed up there."""
        said = str(self.ids)
        match kind:
            case "quick" | "slow":
                answer = self.call(kind)
                if answer["result"]["structuredContent"] != {"message": said}:
                    raise Wrong(answer)
                return "succeeded"
            case "failing" | "denied":
                answer = self.call(kind)
                if "error" not in answer and not answer["result"].get("isError"):
                    raise Wrong(answer)
                return "failed" if kind == "failing" else None
            case "read":
                answer = self.ask("resources/read", {"uri": "skill://warehouse/stock"}, "skill://warehouse/stock")
                if "Count it." not in answer["result"]["contents"][0]["text"]:
                    raise Wrong(answer)
                return "succeeded"
            case "list":
                tools = {tool["name"] for tool in self.ask("tools/list", {})["result"]["tools"]}
                if not {"quick", "slow", "failing"} <= tools:
                    raise Wrong(tools)
                return None
            case "prompt":
                answer = self.ask("prompts/get", {"name": "count", "arguments": {"what": "tea"}}, "count")
                if answer["result"]["messages"][0]["content"]["text"].strip() != "Count tea.":
                    raise Wrong(answer)
                return "succeeded"
            case "task":
                return self.task()
        raise ValueError(kind)

    def task(self):
        arguments = {"name": "slow", "arguments": {"message": "task"}}
        arguments["task"] = {"ttl": 60_000}
        answer = self.ask("tools/call", arguments, "slow")
        result = answer["result"]
        # A server may answer a modern call at once, whatever the client can do.
        task = result.get("task", result if result.get("resultType") == "task" else None)
        if task is None:
            if result["structuredContent"] != {"message": "task"}:
                raise Wrong(answer)
            return "succeeded"
        for _ in range(200):
            answer = self.ask("tasks/get", {"taskId": task["taskId"]}, task["taskId"])["result"]
            if answer["status"] == "completed":
                return "succeeded"
            if answer["status"] in ("failed", "cancelled"):
                break
            time.sleep(0.05)
        raise Wrong(answer)


def stream(port, name, end):
    """Keeps a stream of notifications open until the end."""
    about = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"toolsListChanged": True}, "_meta": about}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params})
    connection.request("POST", "/mcp", body, headers)
    response = connection.getresponse()
    if response.status != 200 or not response.read1(1):
        raise Wrong(response.status)
    end.wait()
    connection.close()


def run_clients(numbers, ports, seconds, principals, begin, results):
    """What one process of the generator does: one thread a client."""
    times, wrong, calls = collections.defaultdict(list), [], collections.Counter()
    lock, end = threading.Lock(), threading.Event()
    began = None

    def one(number):
        chance = random.Random(number)
        client = Client(number, ports, "modern" if number % 2 else "legacy", principals)
        mine, done = collections.defaultdict(list), collections.Counter()
        try:
            while time.monotonic() < began + seconds:
                kind = chance.choices(list(MIX), MIX.values())[0]
                at = time.perf_counter()
                done[client.do(kind)] += 1
                mine[kind].append(time.perf_counter() - at)
            client.close()
        except Exception as error:  # pylint: disable=broad-exception-caught
            with lock:
                wrong.append(f"client {number}: {type(error).__name__}: {error}")
        with lock:
            calls.update(done)
            for kind, took in mine.items():
                times[kind] += took

    threads = [threading.Thread(target=one, args=[number]) for number in numbers]
    streams = [
        threading.Thread(target=stream, args=[ports[number % len(ports)], f"client-{number % principals}", end])
        for number in numbers
        if number % 10 == 0
    ]
    begin.wait()
    began = time.monotonic()
    for thread in streams + threads:
        thread.start()
    for thread in threads:
        thread.join()
    end.set()
    results.put((dict(times), wrong, calls))


def recorded(program, config, outcome):
    """Number of calls in the ledger that ended so."""
    command = [program, "ledger", "export", "--config", config, "--outcome", outcome, "--format", "csv"]
    return len(subprocess.run(command, capture_output=True, check=True).stdout.splitlines()) - 1


def measure(given, work):
    database = Database(work) if given.postgres or given.nodes > 1 else None
    config, ports, nodes = configuration(work, database), [], []
    for number in range(given.nodes):
        ports.append(free_port())
        command = [given.program, "start", "--config", config, "--transport", "http", "--port", str(ports[-1])]
        with open(work / f"log-{number}", "w", encoding="utf-8") as log:
            nodes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, cwd=work))
        listens(ports[-1], nodes[-1], work / f"log-{number}")
    begin, results, workers = multiprocessing.Event(), multiprocessing.Queue(), []
    for at in range(given.processes):
        numbers = range(at, given.clients, given.processes)
        arguments = (numbers, ports, given.seconds, given.principals, begin, results)
        workers.append(multiprocessing.Process(target=run_clients, args=arguments))
        workers[-1].start()
    before = [used(node.pid)[0] for node in nodes]
    disk = used(database.process.pid)[0] if database else 0
    begin.set()
    began = time.monotonic()
    times, wrong, calls = collections.defaultdict(list), [], collections.Counter()
    for _ in workers:
        of_one, problems, made = results.get()
        for kind, took in of_one.items():
            times[kind] += took
        wrong += problems
        calls += made
    took = time.monotonic() - began
    after = [used(node.pid) for node in nodes]
    disk = used(database.process.pid)[0] - disk if database else 0
    connections = database.connections() if database else 0
    for node in nodes:
        node.terminate()
    for node in nodes:
        node.wait(60)
    requests = sum(map(len, times.values()))
    print(f"{requests} requests of {given.clients} clients in {took:.1f} s, {requests / took:.0f} a second")
    for kind in MIX:
        all_of_it = sorted(times[kind]) or [0]
        middle, late = (1000 * all_of_it[len(all_of_it) * part // 100] for part in (50, 99))
        print(f"    {kind:8} {len(times[kind]):8}   p50 {middle:8.2f} ms   p99 {late:8.2f} ms")
    for number, ((seconds, resident), start) in enumerate(zip(after, before, strict=True)):
        cost = 1_000_000 * (seconds - start) / max(requests, 1)
        print(f"    server {number}: {cost:.0f} µs of CPU for each of all requests, {resident / 2**20:.0f} MiB")
    if database:
        print(f"    PostgreSQL: {1_000_000 * disk / max(requests, 1):.0f} µs of CPU a request, {connections} connections")
    for outcome in ("succeeded", "failed"):
        kept = recorded(given.program, config, outcome)
        print(f"    {outcome}: {calls[outcome]} answered, {kept} in the ledger")
        if kept != calls[outcome]:
            wrong.append(f"the ledger has {kept} calls that {outcome}, and {calls[outcome]} were answered so")
    if database:
        database.stop()
    for problem in wrong[:10]:
        print(f"wrong: {problem}")
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--principals", type=int, default=16)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)
        sys.exit(measure(given, pathlib.Path(work)))


main()
