"""Runs the official suites against one server and adds up what they say.

The suites speak HTTP. Over stdio, they speak to stdio_bridge.py, and what is about HTTP itself is
left out: over_stdio.py says what. Through a gateway, they speak to the gateway over HTTP, and the
transport is that between gateway and server.

Called by run.sh, which installs the suites. Needs nothing but Python 3.10.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import over_stdio

HERE = Path(__file__).resolve().parent
BASELINE = HERE / "expected-failures.yaml"
BRIDGE = HERE / "stdio_bridge.py"
TRANSPORTS = ["http", "stdio"]

START_SECONDS = 60
STOP_SECONDS = 10
SUITE_SECONDS = 300


@dataclass(frozen=True)
class Run:
    """One run of one suite."""

    suite: str
    selection: str
    revision: str
    transport: str
    behind_gateway: bool = False
    # Name of the server, if it is not one of ours.
    server: str = ""

    def options(self) -> list[str]:
        if self.selection == "requirements":
            return ["--requirements", self.revision]
        if self.selection == "pending":
            return ["--suite", "pending"]
        return ["--suite", "all", "--spec-version", self.revision]

    def words(self) -> set[str]:
        """What an `only` in the baseline may call it by."""
        words = {self.suite, self.selection, self.revision, self.transport}
        return words | ({"gateway"} if self.behind_gateway else set())


def runs(transport: str, through_gateway: bool) -> list[Run]:
    if through_gateway:
        newest = ("2025-11-25", "2026-07-28")
        return [Run("0.2", "requirements", revision, transport, behind_gateway=True) for revision in newest]
    # 2025-03-26 is nothing but sessions, which stdio does not have.
    oldest = ["2025-03-26"] if transport == "http" else []
    selected = [
        *(("0.2", "all", revision) for revision in (*oldest, "2025-06-18", "2025-11-25", "2026-07-28")),
        *(("0.2", "requirements", revision) for revision in ("2025-11-25", "2026-07-28")),
        # Extensions, tasks and skills among them, count towards nothing but this.
        ("0.2", "pending", "-"),
        *(("0.1", "all", revision) for revision in ("2025-06-18", "2025-11-25")),
    ]
    return [Run(*each, transport) for each in selected]


# Scenarios that may look at nothing, with the reason. Any other that does is not passed: it
# skipped what it is for, because the server lacks what it calls.
MAY_CHECK_NOTHING = {
    "tasks-status-notifications": "is a placeholder in the suite itself",
}

# The same through a gateway.
MAY_CHECK_NOTHING_BEHIND = {
    "server-sse-polling": "the gateway follows a stream that the server has closed, and closes none itself",
}


@dataclass(frozen=True)
class Entry:
    """A scenario that is known to fail, why, and in which runs."""

    scenario: str
    only: frozenset[str]

    def concerns(self, run: Run) -> bool:
        return self.only <= run.words()


def read_baseline() -> list[Entry]:
    """The entries of expected-failures.yaml, of which each must give its reason.

    A reason may begin with "only WORD ...:", as in "only 2026-07-28:" or "only 0.1
    2025-06-18:", where a scenario fails in some runs and passes in others.
    """
    entries = []
    for number, line in enumerate(BASELINE.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.rstrip() in ("server:", "server: []"):
            continue
        match = re.fullmatch(r"  - (\S+) +# (?:only ([\w. -]+): )?(\S.*)", line)
        if match is None:
            raise SystemExit(f"{BASELINE.name}:{number}: expected '  - scenario  # reason', found {line!r}")
        entries.append(Entry(match[1], frozenset((match[2] or "").split())))
    return entries


@dataclass
class Report:
    """What one run said."""

    passed: int
    failed: int
    expected: list[str]
    stale: list[str]
    unexpected: list[str]
    empty: list[str]
    trouble: str | None
    left_out: over_stdio.LeftOut = field(default_factory=over_stdio.LeftOut)

    def leave_out(self, left_out: over_stdio.LeftOut) -> None:
        """Counts without what cannot be asked over stdio."""
        self.left_out = left_out
        self.passed -= left_out.passed
        self.failed -= left_out.failed
        unexpected = []
        for named in self.unexpected:
            scenario = named.partition(":")[0]
            if scenario not in left_out.wrong:
                unexpected.append(named)
            elif left_out.wrong[scenario]:
                unexpected.append(f"{scenario}: {', '.join(left_out.wrong[scenario])}")
        self.unexpected = unexpected
        self.empty = [scenario for scenario in self.empty if scenario not in left_out.met]


def section(text: str, title: str) -> list[str]:
    """The scenarios listed under a heading that begins with `title`."""
    found: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(title) and line.endswith(":"):
            inside = True
        elif inside and (match := re.fullmatch(r"  [~✓✗] (\S+).*", line)):
            found.append(match[1])
        elif inside:
            break
    return found


def carry_out(run: Run, server: Server, entries: list[Entry], cache: Path) -> Report:
    way = f"gateway-{run.transport}" if run.behind_gateway else run.transport
    results = cache / "results" / f"{run.server}{way}-{run.suite}-{run.selection}-{run.revision}"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    baseline = results / "expected-failures.yaml"
    listed = [f"  - {entry.scenario}\n" for entry in entries if entry.concerns(run)]
    baseline.write_text("server:\n" + "".join(listed) if listed else "server: []\n", encoding="utf-8")
    program = cache / f"suite-{run.suite}/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    command = ["node", program, "server", "--url", server.url, *run.options()]
    command += ["--expected-failures", baseline, "-o", results]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SUITE_SECONDS,
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        output, status = late.stdout or b"", None
    text = re.sub(r"\x1b\[[0-9;]*m", "", output.decode(errors="replace"))
    (results / "output.txt").write_text(text, encoding="utf-8")
    summary = text.partition("=== SUMMARY ===")[2]
    total = re.search(r"^Total: (\d+) passed, (\d+) failed", summary, re.MULTILINE)
    report = Report(
        passed=int(total[1]) if total else 0,
        failed=int(total[2]) if total else 0,
        expected=section(summary, "Expected failures"),
        stale=section(summary, "Stale baseline entries"),
        unexpected=section(summary, "Unexpected failures"),
        empty=[
            scenario
            for scenario in re.findall(r"^. (\S+): 0 passed, 0 failed$", summary, re.MULTILINE)
            if scenario not in MAY_CHECK_NOTHING and not (run.behind_gateway and scenario in MAY_CHECK_NOTHING_BEHIND)
        ],
        trouble=None,
    )
    if status is None:
        report.trouble = f"it was not done within {SUITE_SECONDS} s"
    elif total is None:
        report.trouble = f"it ended with {status} and without a total: {text[-1000:]}"
    elif not report.passed:
        report.trouble = "nothing passed"
    elif status != 0 and not report.stale and not report.unexpected:
        report.trouble = f"it ended with {status}: {text[-1000:]}"
    if server.is_bridged:
        report.leave_out(over_stdio.leave_out(results))
    return report


class Server:
    """The server under test: one that runs already, or one of our own, by itself or behind a gateway."""

    def __init__(self, target: list[str], transport: str, gateway: str | None) -> None:
        self.gateway = gateway
        self.is_bridged = transport == "stdio" and gateway is None
        # Stopped in this order.
        self.processes: list[subprocess.Popen[bytes]] = []
        self.log = tempfile.TemporaryFile()
        self.directory = tempfile.TemporaryDirectory()
        command = [os.path.abspath(target[0]), *target[1:]]
        try:
            if target[0].isdigit():
                self.url = f"http://127.0.0.1:{target[0]}/mcp"
            elif is_url(target[0]):
                self.url = target[0]
            elif transport == "http":
                self.url = self._start([*command, *([] if target[1:] else ["--port", "{port}"])])
            elif gateway is None:
                self.url = self._start([sys.executable, str(BRIDGE), "--port", "{port}", "--", *command])
            if gateway is not None:
                upstream = {"url": self.url} if transport == "http" else {"command": command[0], "args": command[1:]}
                self.url = self._start(self._gateway(gateway, upstream))
        except SystemExit:
            self.stop()
            raise

    def _gateway(self, program: str, upstream: dict[str, object]) -> list[str]:
        """The command of a gateway that has one upstream and changes neither names nor URIs."""
        plenty = 1_000_000
        settings = {
            "transport": "http",
            "ledger": {"path": "ledger.db"},
            "gateway": {"names": "{tool}", "describe_origin": False},
            "upstreams": {"suite": {**upstream, "uris": "as-is"}},
            "governance": {"default_quota": {"max_calls_per_minute": plenty, "max_calls_per_day": plenty}},
        }
        path = Path(self.directory.name) / "mcp-server.yaml"
        path.write_text(json.dumps({"mcp_server": settings}), encoding="utf-8")
        return [os.path.abspath(program), "start", "--config", str(path), "--port", "{port}"]

    def _start(self, command: list[str]) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen(
            [word.replace("{port}", str(port)) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.processes.insert(0, process)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return f"http://127.0.0.1:{port}/mcp"
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the server did not listen (status {process.poll()}): {self.said()}")
                time.sleep(0.05)

    def said(self) -> str:
        if not self.processes:
            return "(not started by us)"
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-2000:]

    def died(self) -> bool:
        return any(process.poll() is not None for process in self.processes)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(STOP_SECONDS)

    def ended_badly(self) -> bool:
        """Whether a bridge that was stopped had trouble with its children."""
        return self.is_bridged and any(process.returncode != 0 for process in self.processes)


@dataclass
class Sum:
    """What all runs over one transport came to."""

    passed: int = 0
    failed: int = 0
    left_out: int = 0
    met: set[Entry] = field(default_factory=set)
    met_over_stdio: set[str] = field(default_factory=set)
    broken_off: bool = False


def carry_out_all(server: Server, transport: str, entries: list[Entry], cache: Path) -> Sum:
    total = Sum()
    for run in runs(transport, server.gateway is not None):
        report = carry_out(run, server, entries, cache)
        stale = [*report.stale, *report.left_out.stale]
        left_out = report.left_out.passed + report.left_out.failed
        total.passed += report.passed
        total.failed += len(report.unexpected) + len(stale) + len(report.empty) + bool(report.trouble)
        total.left_out += left_out
        total.met |= {entry for entry in entries if entry.concerns(run) and entry.scenario in report.expected}
        total.met_over_stdio |= report.left_out.met
        lines = [
            f"{run.transport:<9} {run.suite:<6} {run.selection:<13} {run.revision:<11}"
            f" {report.passed:>7} {report.failed:>7} {left_out:>8}  {len(report.expected)} scenarios",
            *(f"    FAILED {scenario}" for scenario in report.unexpected),
            *(f"    PASSES NOW {scenario}: take it out of {BASELINE.name}" for scenario in report.stale),
            *(f"    IN THE WRONG LIST {entry}: see over_stdio.py" for entry in report.left_out.stale),
            *(f"    CHECKED NOTHING {scenario}" for scenario in report.empty),
        ]
        if report.trouble:
            lines.append(f"    FAILED {report.trouble}")
        total.broken_off = server.died()
        if total.broken_off:
            lines.append(f"    FAILED the server is gone: {server.said()}")
            total.failed += 1
        # At once: another transport may have something to say as well.
        print("\n".join(lines), flush=True)
        if total.broken_off:
            break
    return total


# Servers by the official TypeScript SDK, of which each speaks this revision to the suite by itself.
TYPESCRIPT = [("sdk-1", "2025-11-25"), ("server-2", "2026-07-28")]


def compare(gateway: str, transport: str, kind: str, revision: str, cache: Path) -> int:
    """Runs the suite against a server of others through a gateway, and by itself; returns how much is worse there."""
    node = shutil.which("node")
    command = [str(node), str(cache.parent / "clients/servers/suite.mjs"), kind]
    found = {}
    for way in ("by itself", "behind"):
        # The suite speaks HTTP, and so does a server that is asked by itself.
        is_behind = way == "behind"
        listens = transport == "http" or not is_behind
        run = Run("0.2", "requirements", revision, transport, is_behind, f"{kind}-")
        words = [*command, "{port}"] if listens else command
        server = Server(words, "http" if listens else "stdio", gateway if is_behind else None)
        try:
            found[way] = carry_out(run, server, [], cache)
        finally:
            server.stop()
    alone, behind = found["by itself"], found["behind"]
    own = {*alone.unexpected, *alone.empty, *MAY_CHECK_NOTHING_BEHIND}
    worse = [it for it in [*behind.unexpected, *behind.empty] if it not in own]
    worse += [it.trouble for it in (alone, behind) if it.trouble and not it.unexpected]
    lines = [
        f"{transport:<9} {kind:<9} {revision:<11} {alone.passed:>9} {behind.passed:>9}  {', '.join(sorted(alone.unexpected))}",
        *(f"    FAILED {it}" for it in worse),
    ]
    print("\n".join(lines), flush=True)
    return len(worse)


def compare_typescript(gateway: str, cache: Path) -> int:
    print(f"{'transport':<9} {'server':<9} {'revision':<11} {'by itself':>9} {'behind':>9}  fails by itself", flush=True)
    rows = [(transport, *row) for transport in TRANSPORTS for row in TYPESCRIPT]
    with ThreadPoolExecutor(len(rows)) as pool:
        running = [pool.submit(compare, gateway, *row, cache) for row in rows]
        failed = sum(each.result() for each in running)
    print(f"details: {cache / 'results'}")
    print(f"{failed} scenarios fail behind the gateway that pass without it")
    return 1 if failed else 0


def is_url(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def chosen_transports(target: list[str], wanted: list[str]) -> list[str]:
    listens = target[0].isdigit() or is_url(target[0]) or any("{port}" in word for word in target)
    if listens and "stdio" in wanted:
        raise SystemExit("over stdio a program is started, and without a port")
    return [it for it in TRANSPORTS if it in wanted] or (["http"] if listens else TRANSPORTS)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True, help="where run.sh installed the suites")
    parser.add_argument("--transport", action="append", choices=TRANSPORTS, default=[])
    parser.add_argument("--through", metavar="GATEWAY", help="the program that stands before the server")
    parser.add_argument("target", nargs=argparse.REMAINDER, help="a port, a URL, or a program and its arguments")
    arguments = parser.parse_args()
    if not arguments.target:
        parser.error("what is to be tested?")
    if arguments.target == ["typescript"]:
        if not arguments.through:
            parser.error("a server of others is compared with itself behind a gateway: --through")
        return compare_typescript(arguments.through, arguments.cache)
    transports = chosen_transports(arguments.target, arguments.transport)
    # Ended by a signal, we still stop the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    entries = read_baseline()
    servers: list[Server] = []
    sums: list[Sum] = []
    print(
        f"{'transport':<9} {'suite':<6} {'selection':<13} {'revision':<11}"
        f" {'passed':>7} {'failed':>7} {'left out':>8}  expected to fail",
        flush=True,
    )
    # Most of the time is spent on waiting for tasks.
    with ThreadPoolExecutor(len(transports)) as pool:
        try:
            for transport in transports:
                servers.append(Server(arguments.target, transport, arguments.through))
            running = [
                pool.submit(carry_out_all, server, transport, entries, arguments.cache)
                for server, transport in zip(servers, transports)
            ]
            sums = [each.result() for each in running]
        finally:
            for server in servers:
                server.stop()
    failed = sum(it.failed for it in sums)
    met = {entry for it in sums for entry in it.met}
    for entry in entries:
        if entry not in met and ("gateway" in entry.only) is bool(arguments.through):
            print(f"    NEVER FAILED {entry.scenario}: take it out of {BASELINE.name}")
            failed += 1
    for server, total in zip(servers, sums):
        if total.broken_off:
            continue
        if server.ended_badly():
            print(f"    FAILED the bridge did not end well: {server.said()}")
            failed += 1
        if server.is_bridged:
            for name in sorted({*over_stdio.NOT_PASSED, *over_stdio.PASSED_BY_BRIDGE} - total.met_over_stdio):
                print(f"    NEVER MET {name}: take it out of over_stdio.py")
                failed += 1
    print(f"details: {arguments.cache / 'results'}")
    for transport, total in zip(transports, sums):
        left_out = f", {total.left_out} left out as they are about HTTP" if total.left_out else ""
        print(f"{transport}: {total.passed} checks passed{left_out}")
    print(f"{failed} scenarios failed that are not expected to")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
