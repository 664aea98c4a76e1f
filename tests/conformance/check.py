"""Runs the official suites against one server and adds up what they say.

Called by run.sh, which installs the suites. Needs nothing but Python 3.10.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
BASELINE = HERE / "expected-failures.yaml"

START_SECONDS = 60
STOP_SECONDS = 10
SUITE_SECONDS = 300


@dataclass(frozen=True)
class Run:
    """One run of one suite."""

    suite: str
    selection: str
    revision: str

    def options(self) -> list[str]:
        if self.selection == "requirements":
            return ["--requirements", self.revision]
        if self.selection == "pending":
            return ["--suite", "pending"]
        return ["--suite", "all", "--spec-version", self.revision]

    def words(self) -> set[str]:
        """What an `only` in the baseline may call it by."""
        return {self.suite, self.selection, self.revision}


RUNS = [
    *(Run("0.2", "all", revision) for revision in ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")),
    *(Run("0.2", "requirements", revision) for revision in ("2025-11-25", "2026-07-28")),
    # Extensions, tasks and skills among them, count towards nothing but this.
    Run("0.2", "pending", "-"),
    *(Run("0.1", "all", revision) for revision in ("2025-06-18", "2025-11-25")),
]


# Scenarios that may look at nothing, with the reason. Any other that does is not passed: it
# skipped what it is for, because the server lacks what it calls.
MAY_CHECK_NOTHING = {
    "tasks-status-notifications": "is a placeholder in the suite itself",
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


def carry_out(run: Run, url: str, entries: list[Entry], cache: Path) -> Report:
    results = cache / "results" / f"{run.suite}-{run.selection}-{run.revision}"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    baseline = results / "expected-failures.yaml"
    listed = [f"  - {entry.scenario}\n" for entry in entries if entry.concerns(run)]
    baseline.write_text("server:\n" + "".join(listed) if listed else "server: []\n", encoding="utf-8")
    program = cache / f"suite-{run.suite}/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    command = ["node", program, "server", "--url", url, *run.options()]
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
            if scenario not in MAY_CHECK_NOTHING
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
    return report


class Server:
    """The server under test: one that runs already, or one of our own."""

    def __init__(self, target: list[str]) -> None:
        self.process = None
        self.log = None
        if target[0].isdigit():
            self.url = f"http://127.0.0.1:{target[0]}/mcp"
        elif target[0].startswith(("http://", "https://")):
            self.url = target[0]
        else:
            self._start(target[0], target[1:] or ["--port", "{port}"])

    def _start(self, binary: str, arguments: list[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [os.path.abspath(binary), *(argument.replace("{port}", str(port)) for argument in arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    status = self.process.poll()
                    self.stop()
                    raise SystemExit(f"the server did not listen (status {status}): {self.said()}")
                time.sleep(0.05)

    def said(self) -> str:
        if self.log is None:
            return "(not started by us)"
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-2000:]

    def died(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(STOP_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="where run.sh installed the suites")
    parser.add_argument("target", nargs="+", help="a port, a URL, or a program and its arguments")
    arguments = parser.parse_args()
    # Ended by a signal, we still stop the server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    entries = read_baseline()
    passed = failed = 0
    met: set[Entry] = set()
    server = Server(arguments.target)
    try:
        print(f"{'suite':<6} {'selection':<13} {'revision':<11} {'passed':>7} {'failed':>7}  of which expected")
        for run in RUNS:
            report = carry_out(run, server.url, entries, arguments.cache)
            wrong = len(report.unexpected) + len(report.stale) + len(report.empty) + bool(report.trouble)
            passed += report.passed
            failed += wrong
            met |= {entry for entry in entries if entry.concerns(run) and entry.scenario in report.expected}
            print(
                f"{run.suite:<6} {run.selection:<13} {run.revision:<11} {report.passed:>7} {report.failed:>7}"
                f"  {len(report.expected)} scenarios",
                flush=True,
            )
            for scenario in report.unexpected:
                print(f"    FAILED {scenario}")
            for scenario in report.stale:
                print(f"    PASSES NOW {scenario}: take it out of {BASELINE.name}")
            for scenario in report.empty:
                print(f"    CHECKED NOTHING {scenario}")
            if report.trouble:
                print(f"    FAILED {report.trouble}")
            if server.died():
                print(f"    FAILED the server is gone: {server.said()}")
                failed += 1
                break
    finally:
        server.stop()
    for entry in entries:
        if entry not in met:
            print(f"    NEVER FAILED {entry.scenario}: take it out of {BASELINE.name}")
            failed += 1
    print(f"details: {arguments.cache / 'results'}")
    print(f"{passed} checks passed, {failed} scenarios failed that are not expected to")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
