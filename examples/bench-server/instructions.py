#!/usr/bin/env python3
"""Instructions and allocations of one call, counted by callgrind and compared with instructions.txt.

    instructions.py SERVER [--program PROGRAM] [--update] [--top N] [--keep DIRECTORY] [SCENARIO...]

SERVER is the program `bench-server`, PROGRAM is `owlclaw-mcp`: with it, a call of a tool of an upstream is counted as well,
with the log that a server writes by default and a relaxed ledger; SERVER is the upstream. A count is the difference between a long and a short run, divided by
the calls that the long one has more, so starting and stopping are not in it; one call is answered before
the next is sent. Only user-space instructions count. What is above its limit is counted up to three times, and
the least counts: a busy machine adds up to 3 %. Fails if a count is more than 3 % above the one in
instructions.txt, and prints the functions that take most. `--update` writes what was counted instead.

Valgrind shows programs a processor with AVX2 and without SHA extensions, whatever it runs on: hashing is
done in software and is told apart ("SHA-256"). With a relaxed ledger, the groups that its thread writes depend on
time: those counts are printed and not compared.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

COUNTS = pathlib.Path(__file__).with_name("instructions.txt")
TOLERANCE = 0.03
ATTEMPTS = 3
SHORT, LONG = 200, 1200
SHORT_LIST, LONG_LIST = 50, 250
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
MESSAGE = "m100000001" + "x" * 22
ALLOCATORS = re.compile(r"^(malloc|calloc|realloc|memalign|posix_memalign|aligned_alloc|mi_.*alloc.*)$")


class Stdio:
    """A client on the standard streams of the server."""

    def __init__(self, command, _port):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)

    def ask(self, body, _method, _name):
        self.process.stdin.write(body + b"\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)


class Http:
    """A client on one connection that is kept."""

    version = "2026-07-28"
    session = None

    def __init__(self, command, port):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.port = port
        until = time.monotonic() + 300
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), 60)
                break
            except OSError:
                if self.process.poll() is not None or until < time.monotonic():
                    raise SystemExit("the server does not listen")
                time.sleep(0.05)
        self.input = self.socket.makefile("rb")

    def ask(self, body, method, name):
        head = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
        ]
        if method != "initialize":
            head.append(f"MCP-Protocol-Version: {self.version}")
        if self.version == "2026-07-28":
            head.append(f"Mcp-Method: {method}")
            if name:
                head.append(f"Mcp-Name: {name}")
        if self.session:
            head.append(f"Mcp-Session-Id: {self.session}")
        head.append(f"Content-Length: {len(body)}")
        self.socket.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        length = 0
        while (line := self.input.readline().strip()) != b"":
            key, _, value = line.partition(b":")
            if key.lower() == b"content-length":
                length = int(value)
            elif key.lower() == b"mcp-session-id":
                self.session = value.strip().decode()
        return self.input.read(length)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class LegacyHttp(Http):
    """The same in a session of 2025-11-25."""

    version = "2025-11-25"

    def __init__(self, command, port):
        super().__init__(command, port)
        opening = {
            "protocolVersion": self.version,
            "capabilities": {},
            "clientInfo": META["io.modelcontextprotocol/clientInfo"],
        }
        self.ask(request("initialize", opening), "initialize", None)
        told = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        self.ask(told, "notifications/initialized", None)


class Gateway(Http):
    """The program in front of `bench-server`, as its configuration in `directory` says."""

    def __init__(self, command, port, server, directory):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            upstream = probe.getsockname()[1]
        self.upstream = subprocess.Popen([server, "http", "--port", str(upstream), "--ledger", "none"],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        settings = {
            "transport": "http",
            "http": {"port": port},
            "ledger": {"durability": "relaxed", "path": str(directory / "ledger.db")},
            "upstreams": {"up": {"url": f"http://127.0.0.1:{upstream}/mcp", "risk": "read_only"}},
            "governance": {"default_quota": {"max_calls_per_minute": 10**8, "max_calls_per_day": 10**8}},
        }
        config = directory / "mcp-server.yaml"
        config.write_text(json.dumps({"mcp_server": settings}))
        super().__init__([*command, "start", "--config", str(config)], port)
        # The first call waits until the upstream is there.
        method, name, params, _ = GATEWAY
        self.ask(request(method, params | {"_meta": META}), method, name)

    def stop(self):
        super().stop()
        self.upstream.kill()
        self.upstream.wait(60)


def request(method, params):
    it = {"jsonrpc": "2.0", "id": 100000001, "method": method, "params": params}
    return json.dumps(it, separators=(",", ":")).encode()


def call(name="echo"):
    return "tools/call", name, {"name": name, "arguments": {"message": MESSAGE}}, MESSAGE.encode()


LIST = ("tools/list", None, {}, b'"tool_999"')
UNKNOWN = ("tools/call", "missing", {"name": "missing", "arguments": {"message": MESSAGE}}, b'"error"')

GATEWAY = call("mcp_up_echo")

# Name: the client, the ledger, options, and what is asked, with what its answer has in it.
SCENARIOS = {
    "http-none": (Http, "none", [], call()),
    "http-relaxed": (Http, "relaxed", [], call()),
    "http-legacy": (LegacyHttp, "none", [], call()),
    "http-refused": (Http, "none", [], UNKNOWN),
    "http-10000-tools": (Http, "none", ["--tools", "10000"], call()),
    "http-200-rules": (Http, "none", ["--rules", "200"], call()),
    "http-list-1000": (Http, "none", ["--tools", "1000"], LIST),
    "stdio-none": (Stdio, "none", [], call()),
    "stdio-relaxed": (Stdio, "relaxed", [], call()),
}

# Counted if the program is given. Its threads for the ledger and the log do as much at once as there is.
PROGRAM_SCENARIOS = {"gateway-logged": (Gateway, "relaxed", [], GATEWAY)}

# Counted only if they are named: they take long to start.
MORE_SCENARIOS = {
    "http-100000-principals": (Http, "none", ["--principals", "100000"], call()),
}


# How many entries share a group, and how soon they are indexed, depends on time: told, and not compared.
NOT_COMPARED = {"http-relaxed", "stdio-relaxed"}


def run(server, program, scenario, calls, directory):
    """Callgrind's file of a run with so many calls."""
    scenarios = SCENARIOS | PROGRAM_SCENARIOS | MORE_SCENARIOS
    client_of, ledger, more, _ = scenarios[scenario]
    out = pathlib.Path(directory, f"{scenario}.{calls}.callgrind")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    transport = "stdio" if client_of is Stdio else "http"
    database = pathlib.Path(directory, f"{scenario}.{calls}.db")
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
    if client_of is Gateway:
        with tempfile.TemporaryDirectory(dir=directory) as files:
            client = Gateway([*command, program], port, server, pathlib.Path(files))
            return asked(client, scenario, calls, out)
    command += [server, transport, "--port", str(port), "--ledger", ledger, "--file", str(database), *more]
    return asked(client_of(command, port), scenario, calls, out)


def asked(client, scenario, calls, out):
    """Callgrind's file, once the client has made so many calls."""
    _, _, _, (method, name, params, expected) = (SCENARIOS | PROGRAM_SCENARIOS | MORE_SCENARIOS)[scenario]
    if not isinstance(client, LegacyHttp):
        params = params | {"_meta": META}
    body = request(method, params)
    for _ in range(calls):
        answer = client.ask(body, method, name)
        if expected not in answer:
            raise SystemExit(f"{scenario}: unexpected answer {answer[:500]!r}")
    client.stop()
    return out


def read(path):
    """Instructions by function, and how often memory was allocated."""
    own, allocations, names = collections.Counter(), 0, {}
    function, is_call = None, False

    def named(text):
        number, _, name = text.partition(" ")
        if name:
            names[number] = name
        return names[number]

    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("fn="):
            function = named(line[3:])
        elif line.startswith("cfn="):
            called = named(line[4:])
        elif line.startswith("calls="):
            if ALLOCATORS.match(called) and not ALLOCATORS.match(function):
                allocations += int(line[6:].split()[0])
            is_call = True
        elif line and line[0] in "+-*0123456789":
            if not is_call:
                own[function] += int(line.split()[1])
            is_call = False
    return own, allocations


def count(server, program, scenario, directory):
    """Instructions, those of them that hash, allocations, and instructions by function of a call."""
    short, long = (SHORT_LIST, LONG_LIST) if "list" in scenario else (SHORT, LONG)
    (before, allocated), (after, allocated_after) = (
        read(run(server, program, scenario, calls, directory)) for calls in (short, long)
    )
    after.subtract(before)
    own = {function: counted / (long - short) for function, counted in after.items()}
    total = sum(own.values())
    hashing = sum(it for function, it in own.items() if "sha2" in function or "sha256" in function)
    return round(total), round(hashing), round((allocated_after - allocated) / (long - short), 1), own


def committed():
    rows = (line.split() for line in COUNTS.read_text().splitlines() if line and line[0] != "#")
    return {row[0]: (float(row[1]), float(row[3])) for row in rows}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("server")
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--program", type=os.path.abspath)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--keep")
    options = parser.parse_intermixed_args()
    if not shutil.which("valgrind"):
        raise SystemExit("valgrind is needed (Debian: apt-get install valgrind)")
    known = committed() if COUNTS.exists() else {}
    counted, grown = {}, []
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.keep or temporary
        os.makedirs(directory, exist_ok=True)
        print(f"{'scenario':18} {'instructions':>12} {'SHA-256':>8} {'allocations':>11}  committed")
        usual = SCENARIOS | (PROGRAM_SCENARIOS if options.program else {})
        for scenario in options.scenarios or usual:
            before = known.get(scenario)
            # A busy machine adds to a count, by waking threads more often, and takes nothing away.
            for _ in range(ATTEMPTS):
                attempt = count(options.server, options.program, scenario, directory)
                if scenario not in counted or attempt[0] < counted[scenario][0]:
                    counted[scenario], own = attempt[:3], attempt[3]
                if scenario in NOT_COMPARED or before is None or counted[scenario][0] <= before[0] * (1 + TOLERANCE):
                    break
            total, hashing, allocations = counted[scenario]
            print(f"{scenario:18} {total:12} {hashing:8} {allocations:11}  {before or 'none'}", flush=True)
            limits = [it * (1 + TOLERANCE) for it in before or (0, 0)]
            is_more = before is None or limits[0] < total or limits[1] + 0.1 < allocations
            if is_more and scenario not in NOT_COMPARED:
                grown.append(scenario)
            if options.scenarios or scenario in grown:
                for function, it in sorted(own.items(), key=lambda it: -it[1])[: options.top]:
                    print(f"    {it:9.0f}  {function[:150]}")
    if options.update:
        head = "# Of one call: user-space instructions, those of them that hash, allocations. See instructions.py.\n"
        rows = [f"{scenario:18} {a:8} {b:8} {c:8}\n" for scenario, (a, b, c) in counted.items()]
        COUNTS.write_text(head + "".join(rows))
    elif grown:
        raise SystemExit(f"more than {COUNTS.name} has: {', '.join(grown)}")


if __name__ == "__main__":
    main()
