"""Starts servers and the official clients' drivers, and judges what they saw.

Called by run.sh, which installs the clients. Needs nothing but Python 3.10.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path

import expectations

HERE = Path(__file__).resolve().parent
RETAIL = HERE.parent.parent / "examples" / "retail" / "mcp-server.yaml"

STEP_SECONDS = 60
DRIVER_SECONDS = 240
START_SECONDS = 60
STOP_SECONDS = 10

# In the environment of all we start, and so of all that those start: how strays are found.
MARK = "OWLCLAW_CLIENT_RUN"


@dataclass(frozen=True)
class Run:
    """One client over one transport, in one era."""

    client: str
    transport: str
    era: str

BOTH = [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern")]
OLD = [("stdio", "legacy"), ("http", "legacy"), ("sse", "legacy")]
CLIENTS = {"python-2": BOTH, "python-1": OLD, "typescript-2": BOTH, "typescript-1": OLD, "inspector": BOTH}


def driver_command(client: str, cache: Path) -> list[str]:
    return {
        "python-2": [str(cache / "python-2/bin/python"), str(HERE / "python/drive.py")],
        "python-1": [str(cache / "python-1/bin/python"), str(HERE / "python/drive_v1.py")],
        "typescript-2": ["node", str(cache / "typescript/drive.mjs")],
        "typescript-1": ["node", str(cache / "typescript/drive_v1.mjs")],
        "inspector": [sys.executable, str(HERE / "inspector/drive.py")],
    }[client]


def environment(cache: Path, mark: str) -> dict[str, str]:
    launcher = cache / "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    return {**os.environ, MARK: mark, "INSPECTOR": str(launcher), "PYTHONDONTWRITEBYTECODE": "1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def strays(mark: str) -> list[int]:
    """The processes that still carry our mark, whoever started them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in variables and state != "Z" and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def wait_for_strays(mark: str, seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while left := strays(mark):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def end(process: subprocess.Popen, seconds: float = STOP_SECONDS) -> int | None:
    """Asks a process to stop; its status, or None when it had to be killed."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(seconds)


class Server:
    """An HTTP server on a free loopback port, over a copy of the configuration's directory."""

    def __init__(self, binary: Path, config: Path, env: dict[str, str], log: Path) -> None:
        self.port = free_port()
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [binary, "start", "--transport", "http", "--port", str(self.port), "--config", config],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            end(self.process)
            raise

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {tail(self.log)}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server was not healthy within {START_SECONDS} s: {tail(self.log)}")
            time.sleep(0.05)


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1200:].strip() or "(it said nothing)"


def drive(command: list[str], plan: dict, env: dict[str, str], results: Path) -> tuple[list[dict], str | None]:
    """The driver's outcomes, and what went wrong with the driver itself. Both are kept in `results`."""
    identity = plan["headers"]["X-MCP-Client-ID"]
    path = results / f"{identity}-plan.json"
    path.write_text(json.dumps(plan, indent=1), encoding="utf-8")
    # Over stdio, what the server writes to its standard error arrives here too.
    log = results / f"{identity}-errors.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=DRIVER_SECONDS)
            trouble = None if process.returncode == 0 else f"it ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            end(process)
            output, _ = process.communicate()
            trouble = f"it was not done within {DRIVER_SECONDS} s"
    (results / f"{identity}-outcomes.jsonl").write_bytes(output)
    outcomes = []
    for line in output.splitlines():
        try:
            outcomes.append(json.loads(line))
        except ValueError:
            trouble = trouble or f"it printed {line[:200]!r}"
    return outcomes, f"{trouble}: {tail(log)}" if trouble else None


def carry_out(run: Run, binary: Path, config: Path, cache: Path) -> list[expectations.Check]:
    """All checks of one run, with a fresh copy of the application and its ledger."""
    mark = uuid.uuid4().hex
    env = environment(cache, mark)
    checks: list[expectations.Check] = []
    results = cache / "results" / f"{run.client}-{run.transport}-{run.era}"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="owlclaw-clients-") as name:
        work = Path(name)
        home = work / "application"
        shutil.copytree(config.parent, home, ignore=shutil.ignore_patterns("*.db*", "__pycache__"))
        server = None
        try:
            if run.transport != "stdio":
                server = Server(binary, home / config.name, env, results / "server.log")
            for identity in expectations.IDENTITIES:
                plan = {
                    "transport": run.transport,
                    "era": run.era,
                    "command": [str(binary), "start", "--transport", "stdio", "--config", str(home / config.name)],
                    # Somewhere else: nothing may depend on the working directory.
                    "cwd": str(work),
                    "env": {"MCP_CLIENT_ID": identity, MARK: mark, "PATH": env["PATH"]},
                    "url": server and f"http://127.0.0.1:{server.port}/mcp{'/sse' * (run.transport == 'sse')}",
                    "headers": {"X-MCP-Client-ID": identity},
                    "timeout": STEP_SECONDS,
                    "steps": expectations.steps(identity, run),
                }
                outcomes, trouble = drive(driver_command(run.client, cache), plan, env, results)
                checks += expectations.judge(identity, run, plan["steps"], outcomes, trouble, home)
                if server is None:
                    left = wait_for_strays(mark, STOP_SECONDS)
                    checks.append(
                        expectations.Check(f"{identity}: its server is gone", not left, f"still running: {left}")
                    )
        except RuntimeError as error:
            checks.append(expectations.Check("the server starts", False, str(error)))
        finally:
            if server is not None:
                status = end(server.process)
                said = f"status {status} within {STOP_SECONDS} s; {tail(server.log)}"
                checks.append(expectations.Check("the server stops when asked", status == 0, said))
            left = wait_for_strays(mark, 2)
            if server is not None:
                checks.append(expectations.Check("nothing is left running", not left, f"still running: {left}"))
            for process in left:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
    return checks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="where run.sh installed the clients")
    parser.add_argument("--config", type=Path, default=RETAIL)
    parser.add_argument("--only", action="append", choices=sorted(CLIENTS), help="only this client; repeatable")
    parser.add_argument("--transport", action="append", choices=["stdio", "http", "sse"], help="only this; repeatable")
    parser.add_argument("--era", choices=["legacy", "modern"], help="only this era")
    arguments = parser.parse_args()

    # Ended by a signal, we still clean up behind us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    passed = failed = 0
    print(f"{'client':<14} {'over':<6} {'era':<7} {'passed':>6} {'failed':>6} {'seconds':>8}")
    for client, combinations in CLIENTS.items():
        for transport, era in combinations:
            if (
                client not in (arguments.only or CLIENTS)
                or transport not in (arguments.transport or [transport])
                or era != (arguments.era or era)
            ):
                continue
            started = time.monotonic()
            checks = carry_out(
                Run(client, transport, era), arguments.binary, arguments.config.resolve(), arguments.cache
            )
            bad = [check for check in checks if not check.ok]
            passed += len(checks) - len(bad)
            failed += len(bad)
            seconds = time.monotonic() - started
            print(
                f"{client:<14} {transport:<6} {era:<7} {len(checks) - len(bad):>6} {len(bad):>6} {seconds:>8.1f}",
                flush=True,
            )
            for check in bad:
                print(f"    FAILED {check.name}\n           {check.detail[:1500]}", flush=True)
    print(f"details: {arguments.cache / 'results'}")
    print(f"{passed} passed, {failed} failed")
    # No check at all is no success.
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
