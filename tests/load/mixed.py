#!/usr/bin/env python3
"""Mixed traffic on one or more servers: what a request costs, how long it takes, and that the ledger has every call.

    cargo build --release -p owlclaw-mcp
    tests/load/mixed.py target/release/owlclaw-mcp [--nodes N] [--clients N] [--seconds S] [--processes N] [--principals N]
    tests/load/mixed.py target/release/owlclaw-mcp --upgrade-from OLD --nodes N [--turns N] [--clients N] [--seconds S]

One server has its ledger in a file. More than one, or `--postgres`, share a PostgreSQL that this program starts (from
/usr/lib/postgresql, as `postgres` if run by root), and each client's requests go to all of them in turn, as a balancer
without stickiness sends them.

Of a hundred requests of a client 62 are calls of a quick tool, 6 of one that waits 50 ms, 2 of one that fails and 2 of one that
is denied; 10 read a resource, 8 list tools, 5 get a prompt, and 5 begin a task and ask for its result. Half of the clients speak
2026-07-28, half 2025-11-25 with a session, which they end and open anew every 200 requests. Each tenth client has a stream open
besides. Prints for each kind of request its number, median and 99th percentile; for each server CPU time of its process tree
a request and its memory; CPU time of PostgreSQL. Exits with 1 if an answer is not what it must be, or if the ledger does not
have each call that was answered once, and no others.

With `--upgrade-from OLD` two or more servers start as the program OLD. Under the load each in turn gets SIGTERM, is waited for,
and starts again, with the same configuration and port, as the program under test; in further turns that replaces itself.
Servers go on serving for two seconds after SIGTERM (`shutdown.ready_delay_seconds`), and clients do what a balancer with
health checks does: a server whose `/health/ready` was not 200 when it was looked at, four times a second, gets no new requests,
and a request goes to another server if its connection cannot be opened or was closed before it was sent. Half of the sessions
are kept to the end. Besides, each third client runs tasks of one to nine seconds, of a tool that is idempotent, and a prompt
is added after each replacement, of which every stream is to hear. Prints for each replacement how long it took, the requests
meanwhile and the longest time that a client waited for an answer from the first attempt on; sessions of before that were used
afterwards; tasks of a server that others were asked for while it was replaced. Everything that is lost is a failure, printed
by kind, and exits with 1: a request that was sent and not answered, a session that is not known, a task without its result, a
stream that does not come back or is not told of a change, a wrong answer, a server that does not start or end in order, a call
that the ledger lacks, or has twice or without an answer.
"""

import argparse
import collections
import contextlib
import glob
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

MIX = {"quick": 62, "slow": 6, "failing": 2, "denied": 2, "read": 10, "list": 8, "prompt": 5, "task": 5}
REQUESTS_OF_A_SESSION = 200
# Ids of requests of each client.
IDS = 10_000_000
# Seconds between two looks at a server's health, after SIGTERM in which it still serves, and after which something is lost.
CHECK_EVERY, READY_DELAY, PATIENCE = 0.25, 2, 60
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


@app.handler("long")
async def long(message: str, seconds: float) -> dict:
    """Says it after some seconds."""
    await asyncio.sleep(seconds)
    return {"message": message}
'''
SKILL = """---
name: stock
description: How stock is counted.
---
Count it.
"""
IDEMPOTENT = """---
name: long
description: Takes its time.
owlclaw:
  idempotent: true
---
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


def configuration(work, database, upgrades):
    (work / "app.py").write_text(APPLICATION)
    (work / "capabilities/warehouse/stock").mkdir(parents=True)
    (work / "capabilities/warehouse/stock/SKILL.md").write_text(SKILL)
    (work / "capabilities/long").mkdir()
    (work / "capabilities/long/SKILL.md").write_text(IDEMPOTENT)
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
    if upgrades:
        settings["shutdown"] = {"ready_delay_seconds": READY_DELAY}
        settings["tasks"] = {"after_seconds": 0, "max_kept": 1_000_000, "max_kept_per_client": 1_000_000}
    path = work / "mcp-server.yaml"
    path.write_text(json.dumps({"mcp_server": settings}))
    return path


class Lost(Exception):
    """A failure: its kind, and what there is to say about it."""


def wrong(answer):
    return Lost("wrong answers", json.dumps(answer))


def result(answer):
    if not isinstance(answer, dict) or "result" not in answer:
        raise wrong(answer)
    return answer["result"]


def is_ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Balancer:
    """The servers that get requests."""

    def __init__(self, ports):
        self.ports, self.ready = ports, list(ports)

    def check(self, end):
        """Looks at their health until the end."""
        while not end.wait(CHECK_EVERY):
            self.ready = [port for port in self.ports if is_ready(port)]


def is_closed(connection):
    """True if the server has closed a kept connection."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


class Client:
    def __init__(self, number, balancer, era, principals, keeps=False):
        self.number, self.era, self.name, self.turn = number, era, f"client-{number % principals}", number
        self.balancer, self.connections = balancer, {}
        self.session, self.left, self.ids, self.keeps = None, 0, number * IDS, keeps
        self.knows_tasks, self.port = False, None
        # For each call that the ledger must have, by the id of its request, how it ended.
        self.calls = {}
        # When each request began, and how long it took to be answered.
        self.times = []
        # When each session was opened, and last used, and whether it is kept.
        self.sessions = []
        # Of each task with a result: its id, that of its request, when and on which port it began, when and where asked for.
        self.tasks = []
        # When what was lost: the kind of the failure, and details.
        self.failures = []
        # Connections that could not be opened, or were closed before a request was sent.
        self.passed_over = 0

    def failed(self, error):
        kind, detail = error.args if isinstance(error, Lost) else ("wrong answers", repr(error))
        self.failures.append((time.monotonic(), kind, f"client {self.number}: {detail}"))

    def connected(self, until):
        """A connection to the next server that is ready, on which nothing was sent yet that was not answered."""
        while time.monotonic() < until:
            ready = self.balancer.ready
            self.turn += 1
            if not ready:
                time.sleep(0.02)
                continue
            self.port = ready[self.turn % len(ready)]
            new = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            connection = self.connections.setdefault(self.port, new)
            try:
                if connection.sock is None:
                    connection.connect()
                elif is_closed(connection):
                    raise ConnectionResetError
                return connection
            except OSError:
                connection.close()
                self.passed_over += 1
                time.sleep(0.02)
        raise Lost("requests without a server that is ready", "")

    def send(self, verb, body, headers):
        began = time.monotonic()
        connection = self.connected(began + PATIENCE)
        try:
            connection.request(verb, "/mcp", body, headers)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Lost("requests sent and not answered", f"{verb} to {self.port}: {error!r}") from error
        self.times.append((began, time.monotonic() - began))
        if response.status == 404 and "Mcp-Session-Id" in headers:
            self.session, self.left = None, 0
            raise Lost("sessions that are not known", text)
        if response.status >= 400:
            raise Lost(f"answers with {response.status}", text)
        if "Mcp-Session-Id" in headers:
            self.sessions[-1][1] = began
        return response, text

    def message(self, method, params, name=None):
        """Body and headers of a request."""
        self.ids += 1
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            message["id"] = self.ids
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.era == "modern":
            extensions = {"extensions": {"io.modelcontextprotocol/tasks": {}}} if self.knows_tasks else {}
            about = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": self.name, "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": extensions,
            }
            params["_meta"] = {**params.get("_meta", {}), **about}
            headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
            if name:
                headers["Mcp-Name"] = name
        elif method != "initialize":
            headers |= {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": self.session}
        return json.dumps(message), headers

    def post(self, method, params, name=None):
        """Headers and message of an answer by the next server."""
        response, text = self.send("POST", *self.message(method, params, name))
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            data = [line[6:] for line in text.splitlines() if line.startswith("data: ") and line[6:].strip()]
            text = next((at for at in data if json.loads(at).get("id") == self.ids), "")
            if not text:
                raise Lost("requests sent and not answered", f"the stream from {self.port} ended without an answer")
        message = json.loads(text) if text.strip() else None
        if message and message.get("id") != self.ids:
            raise wrong(message)
        return response.headers, message

    def ask(self, method, params, name=None):
        if self.era == "legacy" and self.left == 0:
            self.open()
        self.left -= not self.keeps
        _, message = self.post(method, params, name)
        return message

    def open(self):
        self.close()
        client = {"name": self.name, "version": "1"}
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        headers, _ = self.post("initialize", asked)
        self.session, self.left = headers["Mcp-Session-Id"], REQUESTS_OF_A_SESSION
        self.sessions.append([time.monotonic(), 0, self.keeps])
        self.post("notifications/initialized", {})

    def close(self):
        if self.session:
            session, self.session = self.session, None
            self.send("DELETE", None, {"Mcp-Session-Id": session})

    def call(self, tool):
        arguments = {"name": tool, "arguments": {"message": str(self.ids)}}
        return self.ask("tools/call", arguments, tool)

    def do(self, kind):
        """Carries out one request of a kind."""
        said, self.knows_tasks = str(self.ids), False
        match kind:
            case "quick" | "slow":
                answer = self.call(kind)
                if result(answer).get("structuredContent") != {"message": said}:
                    raise wrong(answer)
                self.calls[self.ids] = "succeeded"
            case "failing" | "denied":
                answer = self.call(kind)
                if "error" not in answer and not answer["result"].get("isError"):
                    raise wrong(answer)
                if ("as it should" if kind == "failing" else "permission") not in json.dumps(answer):
                    raise wrong(answer)
                # Refusals are summed up there.
                if kind == "failing":
                    self.calls[self.ids] = "failed"
            case "read":
                answer = self.ask("resources/read", {"uri": "skill://warehouse/stock"}, "skill://warehouse/stock")
                if "Count it." not in result(answer)["contents"][0]["text"]:
                    raise wrong(answer)
                self.calls[self.ids] = "succeeded"
            case "list":
                tools = {tool["name"] for tool in result(self.ask("tools/list", {}))["tools"]}
                if not {"quick", "slow", "failing"} <= tools:
                    raise wrong(sorted(tools))
            case "prompt":
                answer = self.ask("prompts/get", {"name": "count", "arguments": {"what": "tea"}}, "count")
                if result(answer)["messages"][0]["content"]["text"].strip() != "Count tea.":
                    raise wrong(answer)
                self.calls[self.ids] = "succeeded"
            case "task":
                self.task("slow", {"message": "task"}, 0.05)
            case _:
                raise ValueError(kind)

    def task(self, tool, arguments, pause):
        """Begins a task, and asks for its result until it is there."""
        self.knows_tasks = True
        asked = {"name": tool, "arguments": arguments, "task": {"ttl": 600_000}}
        answer = self.ask("tools/call", asked, tool)
        call, begun, port, asks = self.ids, time.monotonic(), self.port, []
        answered = result(answer)
        self.calls[call] = "succeeded"
        # A server may answer a modern call at once, whatever the client can do.
        task = answered.get("task", answered if answered.get("resultType") == "task" else None)
        while task and answered.get("status") != "completed":
            if answered.get("status") in ("failed", "cancelled"):
                raise Lost("tasks without a result", json.dumps(answer))
            if time.monotonic() > begun + PATIENCE:
                raise Lost("tasks without a result", f"after {PATIENCE} s: {json.dumps(answer)}")
            time.sleep(pause)
            try:
                answer = self.ask("tasks/get", {"taskId": task["taskId"]}, task["taskId"])
            except Lost as error:
                # What has become of the task can be asked for again.
                self.failed(error)
                continue
            answered = result(answer)
            asks.append((time.monotonic(), self.port))
        if task and self.era == "legacy":
            answer = self.ask("tasks/result", {"taskId": task["taskId"]})
        elif task:
            answer = answered
        if result(answer).get("structuredContent") != {"message": arguments["message"]}:
            raise wrong(answer)
        if task:
            self.tasks.append((task["taskId"], call, begun, port, asks))


class Stream:
    """A stream of notifications that is opened anew, on any server, whenever one ends."""

    def __init__(self, number, balancer, era, principals):
        self.client = Client(number, balancer, era, principals)
        self.socket, self.opened, self.told, self.ended = None, 0, [], False

    def end(self):
        self.ended = True
        with contextlib.suppress(OSError):
            if self.socket:
                self.socket.shutdown(socket.SHUT_RDWR)

    def follow(self):
        client = self.client
        asked = client.message("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        if client.era == "legacy":
            client.open()
            headers = {"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
            asked = None, headers | {"Mcp-Session-Id": client.session}
        failed = 0
        while not self.ended:
            connection = client.connected(time.monotonic() + PATIENCE)
            client.connections.pop(client.port)
            self.socket = connection.sock
            if self.ended:
                break
            try:
                connection.request("POST" if asked[0] else "GET", "/mcp", *asked)
                response = connection.getresponse()
                if response.status != 200:
                    raise Lost(f"streams answered with {response.status}", response.read().decode())
                self.opened, failed = self.opened + 1, 0
                while line := response.readline():
                    if b"list_changed" in line:
                        self.told.append(time.monotonic())
            except (OSError, http.client.HTTPException) as error:
                # One that is cut off may be opened again as well.
                failed += 1
                if failed > 9 and not self.ended:
                    raise Lost("streams that do not come back", repr(error)) from error
            if not self.ended:
                time.sleep(0.1)


class Load:
    """What one process of the generator does: one thread a client, one a stream, and one a client of long tasks."""

    def __init__(self, given, ports, begin):
        self.given, self.begin, self.balancer = given, begin, Balancer(ports)
        self.kinds, self.until = collections.defaultdict(list), 0

    def client(self, client):
        chance = random.Random(client.number)
        while time.monotonic() < self.until:
            kind = chance.choices(list(MIX), MIX.values())[0]
            at = time.perf_counter()
            try:
                client.do(kind)
                self.kinds[kind].append(time.perf_counter() - at)
            except Exception as error:  # pylint: disable=broad-exception-caught
                client.failed(error)
                time.sleep(0.1)
        self.close(client)

    def tasks(self, client):
        chance = random.Random(client.number)
        while time.monotonic() < self.until - 9:
            try:
                client.task("long", {"message": "long", "seconds": chance.uniform(1, 9)}, 0.2)
            except Exception as error:  # pylint: disable=broad-exception-caught
                client.failed(error)
                time.sleep(0.1)
        self.close(client)

    def close(self, client):
        try:
            client.close()
        except Lost as error:
            client.failed(error)

    def stream(self, stream):
        try:
            stream.follow()
        except Exception as error:  # pylint: disable=broad-exception-caught
            stream.client.failed(error)

    def run(self, numbers, results):
        given, balancer, end = self.given, self.balancer, threading.Event()
        upgrades = bool(given.upgrade_from)
        clients, streams, threads = [], [], []
        for number in numbers:
            era = "modern" if number % 2 else "legacy"
            clients.append(Client(number, balancer, era, given.principals, keeps=upgrades and number % 4 == 0))
            threads.append(threading.Thread(target=self.client, args=[clients[-1]]))
            if upgrades and number % 3 == 0:
                clients.append(Client(given.clients + number, balancer, era, given.principals, keeps=True))
                threads.append(threading.Thread(target=self.tasks, args=[clients[-1]]))
            if number % 10 == 0:
                spoken = "legacy" if upgrades and number % 20 else "modern"
                stream = Stream(2 * given.clients + number, balancer, spoken, given.principals)
                streams.append((stream, threading.Thread(target=self.stream, args=[stream])))
        checking = threading.Thread(target=balancer.check, args=[end])
        self.begin.wait()
        self.until = time.monotonic() + given.seconds
        if upgrades:
            checking.start()
        for thread in [thread for _, thread in streams] + threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Before they end they may yet be told of the last change.
        for stream, thread in streams:
            stream.end()
            thread.join()
        end.set()
        joined = {"kinds": dict(self.kinds)}
        joined["streams"] = [(stream.opened, stream.told) for stream, _ in streams]
        joined["passed_over"] = sum(client.passed_over for client in clients)
        joined["calls"] = {call: outcome for client in clients for call, outcome in client.calls.items()}
        clients += [stream.client for stream, _ in streams]
        for kept in ("times", "sessions", "tasks", "failures"):
            joined[kept] = [at for client in clients for at in getattr(client, kept)]
        results.put(joined)


def recorded(program, config, tasks):
    """How the calls of each request ended, by the ledger. A task that is begun again has the request that began it first."""
    command = [program, "ledger", "export", "--config", config, "--format", "json"]
    found = collections.defaultdict(list)
    for line in subprocess.run(command, capture_output=True, check=True).stdout.splitlines():
        entry = json.loads(line)
        if entry["type"] == "call" and entry["outcome"] != "denied":
            request = json.loads(entry["request_id"])
            if isinstance(request, str):
                request = tasks.get(request.removeprefix("task/").rpartition("/")[0], request)
            found[request].append(entry["outcome"])
    return found


def differences(calls, found, long):
    """Failures that a comparison of answers with the ledger finds; requests that begin long tasks have ids from `long` on."""
    for request, outcomes in found.items():
        told = calls.get(request)
        if told and isinstance(request, int) and request >= long:
            # One that a server could not end was begun again by another.
            outcomes = [outcome for outcome in outcomes if outcome != "cancelled"]
        if told is None:
            yield "calls in the ledger and not answered", f"request {request}: {outcomes}"
        elif len(outcomes) > 1:
            yield "calls twice in the ledger", f"request {request}: {outcomes}"
        elif outcomes != [told]:
            yield "calls that ended otherwise in the ledger", f"request {request} {told}: {outcomes}"
    for request in calls.keys() - found.keys():
        yield "calls answered and not in the ledger", f"request {request}"


class Server:
    """One of the servers, whichever program it is."""

    def __init__(self, number, work, config):
        self.number, self.work, self.config, self.port = number, work, config, free_port()
        self.log, self.process = work / f"log-{number}", None

    def start(self, program):
        command = [program, "start", "--config", self.config, "--transport", "http", "--port", str(self.port)]
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, cwd=self.work)
        listens(self.port, self.process, self.log)
        while not is_ready(self.port):
            if self.process.poll() is not None:
                raise SystemExit(f"server {self.number} ended\n{self.log.read_text()}")
            time.sleep(0.05)

    def complaints(self):
        """Number of lines of its log that warn or tell of errors, by message."""
        said = collections.Counter()
        for line in self.log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                # Lines of requests are of those that fail, as some are to.
                if entry["level"] in ("WARN", "ERROR") and entry["message"] not in ("request", "decision"):
                    said[entry["message"]] += 1
        return said


Replacement = collections.namedtuple("Replacement", "turn server begun ended ready code")


def replace_all(given, servers, work):
    """Replaces each server in turn while the clients go on; what there is to say of each replacement."""
    replacements, began = [], time.monotonic()
    for turn in range(given.turns):
        for server in servers:
            due = began + given.seconds * (len(replacements) + 1) / (given.turns * len(servers) + 2)
            time.sleep(max(2, due - time.monotonic()))
            begun = time.monotonic()
            server.process.terminate()
            code = server.process.wait(PATIENCE)
            ended = time.monotonic()
            server.start(given.program)
            replacements.append(Replacement(turn, server.number, begun, ended, time.monotonic(), code))
            (work / f"prompts/added-{len(replacements)}.md").write_text(PROMPT)
    if time.monotonic() > began + given.seconds:
        raise SystemExit("the clients had ended before all servers were replaced: give more --seconds")
    return replacements


def tell_upgrade(given, servers, replacements, joined, found):
    """Prints how the upgrade went, and yields what failed."""
    ports = [server.port for server in servers]
    print("    replaced          ended after  ready after  requests   longest  failures")

    def meanwhile(when):
        return next((at for at in replacements if at.begun <= when <= at.ready), None)

    waits = collections.defaultdict(lambda: [0])
    for when, took in joined["times"]:
        waits[meanwhile(when) or meanwhile(when + took)].append(took)
    lost = collections.Counter(meanwhile(when) for when, _, _ in joined["failures"])
    for at in [*replacements, None]:
        name = f"server {at.server}, turn {at.turn + 1}" if at else "at other times"
        times = f"{at.ended - at.begun:9.1f} s  {at.ready - at.begun:9.1f} s" if at else " " * 24
        print(f"    {name:16}  {times}  {len(waits[at]) - 1:8}  {1000 * max(waits[at]):5.0f} ms  {lost[at]:8}")
        if at and at.code != 0:
            yield "servers that did not end in order", f"{name}: {at.code}"
    for turn in range(given.turns):
        of_it = [at for at in replacements if at.turn == turn]
        begun, ready = of_it[0].begun, of_it[-1].ready
        kept = [last for opened, last, keeps in joined["sessions"] if keeps and opened < begun]
        print(f"    turn {turn + 1}: {sum(last > ready for last in kept)} of {len(kept)} sessions of before were used after it")
    elsewhere = 0
    for _, _, begun, port, asks in joined["tasks"]:
        of_it = [at for at in replacements if ports[at.server] == port and begun < at.begun]
        elsewhere += any(asked != port and meanwhile(when) in of_it for when, asked in asks)
    again = sum("cancelled" in outcomes for outcomes in found.values())
    print(f"    {elsewhere} tasks of a server were asked for on others while it was replaced, and answered")
    print(f"    {again} tasks that were cut short were begun again, and answered")
    back = sum(max(0, opened - 1) for opened, _ in joined["streams"])
    print(f"    {len(joined['streams'])} streams came back {back} times")
    print(f"    {joined['passed_over']} times a request went elsewhere before it was sent")
    ends = [at.begun for at in replacements[1:]] + [float("inf")]
    for at, end in zip(replacements, ends, strict=True):
        deaf = sum(not any(at.ready <= when < end for when in told) for _, told in joined["streams"])
        if deaf:
            yield "streams that were not told of a change", f"{deaf} after the replacement of server {at.server}"
    for server in servers:
        for message, times in server.complaints().most_common():
            print(f"    log of server {server.number}: {message} ({times} times)")


def gathered(workers, results):
    """Results of all processes of the generator, in one."""
    joined = {"kinds": collections.defaultdict(list), "calls": {}, "passed_over": 0}
    joined |= {kept: [] for kept in ("times", "sessions", "tasks", "streams", "failures")}
    for _ in workers:
        of_one = results.get()
        for kind, took in of_one.pop("kinds").items():
            joined["kinds"][kind] += took
        joined["calls"] |= of_one.pop("calls")
        for kept, values in of_one.items():
            joined[kept] += values
    return joined


def measure(given, work, stack):
    upgrades = bool(given.upgrade_from)
    database = Database(work) if given.postgres or given.nodes > 1 else None
    if database:
        stack.callback(database.stop)
    config = configuration(work, database, upgrades)
    servers = [Server(number, work, config) for number in range(given.nodes)]
    stack.callback(lambda: [server.process.kill() for server in servers if server.process])
    for server in servers:
        server.start(given.upgrade_from or given.program)
    begin, results, workers = multiprocessing.Event(), multiprocessing.Queue(), []
    for at in range(given.processes):
        load = Load(given, [server.port for server in servers], begin)
        numbers = range(at, given.clients, given.processes)
        workers.append(multiprocessing.Process(target=load.run, args=[numbers, results], daemon=True))
        workers[-1].start()
    before = [used(server.process.pid)[0] for server in servers]
    disk = used(database.process.pid)[0] if database else 0
    begin.set()
    began = time.monotonic()
    replacements = replace_all(given, servers, work) if upgrades else []
    joined = gathered(workers, results)
    took = time.monotonic() - began
    after = [used(server.process.pid) for server in servers]
    disk = used(database.process.pid)[0] - disk if database else 0
    connections = database.connections() if database else 0
    for server in servers:
        server.process.terminate()
    failures = [(kind, detail) for _, kind, detail in sorted(joined["failures"])]
    for server in servers:
        code = server.process.wait(PATIENCE)
        if code:
            failures.append(("servers that did not end in order", f"server {server.number} at the end: {code}"))
    times = joined["kinds"]
    requests = sum(map(len, times.values()))
    print(f"{requests} requests of {given.clients} clients in {took:.1f} s, {requests / took:.0f} a second")
    for kind in MIX:
        all_of_it = sorted(times[kind]) or [0]
        middle, late = (1000 * all_of_it[len(all_of_it) * part // 100] for part in (50, 99))
        print(f"    {kind:8} {len(times[kind]):8}   p50 {middle:8.2f} ms   p99 {late:8.2f} ms")
    for number, ((seconds, resident), start) in enumerate(zip(after, before, strict=True)):
        cost = 1_000_000 * (seconds - start) / max(requests, 1)
        # One that has replaced another has not spent what that had.
        spent = "" if upgrades else f"{cost:.0f} µs of CPU for each of all requests, "
        print(f"    server {number}: {spent}{resident / 2**20:.0f} MiB")
    if database:
        print(f"    PostgreSQL: {1_000_000 * disk / max(requests, 1):.0f} µs of CPU a request, {connections} connections")
    found = recorded(given.program, config, {task: call for task, call, *_ in joined["tasks"]})
    calls = joined["calls"]
    for outcome in ("succeeded", "failed"):
        answered = sum(told == outcome for told in calls.values())
        kept = sum(outcomes.count(outcome) for outcomes in found.values())
        print(f"    {outcome}: {answered} answered, {kept} in the ledger")
    failures += differences(calls, found, given.clients * IDS)
    if upgrades:
        failures += tell_upgrade(given, servers, replacements, joined, found)
        verified = subprocess.run([given.program, "ledger", "verify", "--config", config], capture_output=True, check=False)
        if verified.returncode not in (0, 3):
            failures.append(("ledgers that are damaged", verified.stdout.decode() + verified.stderr.decode()))
    for kind, count in collections.Counter(kind for kind, _ in failures).most_common():
        print(f"failed: {kind}: {count}")
        for _, detail in [failure for failure in failures if failure[0] == kind][:3]:
            print(f"    {detail}")
    return bool(failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--upgrade-from", type=os.path.abspath, metavar="OLD")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--principals", type=int, default=16)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    if given.upgrade_from and given.nodes < 2:
        parser.error("--upgrade-from needs --nodes 2 or more: one server that is replaced answers nobody meanwhile")
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        os.chmod(work, 0o755)
        failed = measure(given, pathlib.Path(work), stack)
    sys.exit(failed)


main()
