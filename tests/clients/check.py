"""Starts servers and the official clients' drivers, and judges what they saw.

Called by run.sh, which installs the clients. Needs nothing but Python 3.10.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import desk
import expectations
import governing
import knowing
import operating
import restarting
import resuming
import tasking
import touring
from processes import (
    HERE,
    MARK,
    STEP_SECONDS,
    STOP_SECONDS,
    Server,
    drive,
    driver_command,
    end,
    environment,
    tail,
    wait_for_strays,
)

RETAIL = HERE.parent.parent / "examples" / "retail" / "mcp-server.yaml"


@dataclass(frozen=True)
class Run:
    """One client over one transport, in one era, and which of its plans."""

    client: str
    transport: str
    era: str
    what: str = "calls"


TRANSPORTS = ["stdio", "http", "sse", "websocket"]
WHAT = ["calls", "desk", "governance", "operating", "restarted", "resources", "resumed", "tasks", "tour"]
BOTH = [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern")]
OLD = [("stdio", "legacy"), ("http", "legacy"), ("sse", "legacy"), ("websocket", "legacy")]
# The Inspector's command line can be told which era, or to find out. It takes longest, so it is first.
CLIENTS = {
    "inspector": [*BOTH, ("stdio", "auto"), ("http", "auto")],
    "python-2": BOTH,
    "python-1": OLD,
    "typescript-2": BOTH,
    "typescript-1": OLD,
}


def all_runs() -> list[Run]:
    """Everything there is to run: calls, and what has plans of its own."""
    runs = []
    for client, combinations in CLIENTS.items():
        runs += [Run(client, transport, era) for transport, era in combinations]
        if client in resuming.CLIENTS:
            runs.append(Run(client, "http", "legacy", "resumed"))
        if client in restarting.CLIENTS:
            runs.append(Run(client, "http", "legacy", "restarted"))
        for era in tasking.CLIENTS.get(client, []):
            runs += [Run(client, transport, era, "tasks") for transport in ("stdio", "http")]
        for era in governing.CLIENTS.get(client, []):
            runs += [Run(client, transport, era, "governance") for transport in ("stdio", "http")]
        for era in operating.CLIENTS.get(client, []):
            runs.append(Run(client, "http", era, "operating"))
        for era in desk.CLIENTS.get(client, []):
            runs += [Run(client, transport, era, "desk") for transport in ("stdio", "http")]
        for era in knowing.CLIENTS.get(client, []):
            runs += [Run(client, transport, era, "resources") for transport in ("stdio", "http")]
        for era in touring.CLIENTS.get(client, []):
            runs += [Run(client, transport, era, "tour") for transport in ("stdio", "http")]
    return runs


def url(transport: str, port: int) -> str:
    """Where a client of a transport is let in."""
    where = {"http": ("http", ""), "sse": ("http", "/sse"), "websocket": ("ws", "/ws")}
    scheme, path = where[transport]
    return f"{scheme}://127.0.0.1:{port}/mcp{path}"


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
                command = [binary, "start", "--transport", "http", "--port", "{port}"]
                if run.transport == "websocket":
                    env["MCP_SERVER_HTTP__WEBSOCKET__ENABLED"] = "true"
                server = Server([*command, "--config", home / config.name], env, results / "server.log")
            for identity in expectations.identities(run):
                plan = {
                    "transport": run.transport,
                    "era": run.era,
                    "command": [str(binary), "start", "--transport", "stdio", "--config", str(home / config.name)],
                    # Somewhere else: nothing may depend on the working directory.
                    "cwd": str(work),
                    "env": {"MCP_CLIENT_ID": identity, MARK: mark, "PATH": env["PATH"]},
                    "url": server and url(run.transport, server.port),
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


def checks_of(run: Run, binary: Path, fixture: Path, config: Path, cache: Path) -> list[expectations.Check]:
    match run.what:
        case "governance":
            return governing.carry_out(run.client, run.transport, run.era, binary, cache)
        case "restarted":
            return restarting.carry_out(run.client, binary, config, cache)
        case "operating":
            return operating.carry_out(run.client, run.era, binary, cache)
        case "resumed":
            return resuming.carry_out(run.client, binary, fixture, config, cache)
        case "tasks":
            return tasking.carry_out(run.client, run.transport, run.era, binary, fixture, config, cache)
        case "desk":
            return desk.carry_out(run.client, run.transport, run.era, binary, config, cache)
        case "resources":
            return knowing.carry_out(run.client, run.transport, run.era, binary, config, cache)
        case "tour":
            return touring.carry_out(run.client, run.transport, run.era, binary, config, cache)
    return carry_out(run, binary, config, cache)


is_ending = False


def timed(binary: Path, fixture: Path, config: Path, cache: Path, run: Run) -> tuple[list[expectations.Check], float]:
    if is_ending:
        sys.exit(143)
    started = time.monotonic()
    checks = checks_of(run, binary, fixture, config, cache)
    return checks, time.monotonic() - started


def obey() -> None:
    """Ended by a signal, we still clean up behind us, and begin nothing more."""

    def finish(*_: object) -> None:
        global is_ending
        is_ending = True
        sys.exit(143)

    signal.signal(signal.SIGTERM, finish)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="where run.sh installed the clients")
    parser.add_argument("--config", type=Path, default=RETAIL)
    parser.add_argument("--only", action="append", choices=sorted(CLIENTS), help="only this client; repeatable")
    parser.add_argument("--transport", action="append", choices=TRANSPORTS, help="only this; repeatable")
    parser.add_argument("--era", action="append", choices=["legacy", "modern", "auto"], help="only this; repeatable")
    parser.add_argument("--what", action="append", choices=WHAT, help="only this; repeatable")
    parser.add_argument(
        "--fixture", type=Path, help="the conformance-server, whose tools hang up; beside the binary by default"
    )
    # Most of the time they wait, for one another and for programs to start.
    parser.add_argument("--jobs", type=int, default=1 + (os.cpu_count() or 1), help="how many runs at once")
    arguments = parser.parse_args()
    fixture = arguments.fixture or arguments.binary.parent / "conformance-server"

    obey()

    runs = [
        run
        for run in all_runs()
        if run.client in (arguments.only or [run.client])
        and run.transport in (arguments.transport or [run.transport])
        and run.era in (arguments.era or [run.era])
        and run.what in (arguments.what or [run.what])
    ]
    passed = failed = 0
    print(f"{'client':<12} {'over':<9} {'era':<7} {'what':<10} {'passed':>6} {'failed':>6} {'seconds':>8}")
    with ProcessPoolExecutor(arguments.jobs, initializer=obey) as pool:
        work = partial(timed, arguments.binary, fixture, arguments.config.resolve(), arguments.cache)
        try:
            for run, (checks, seconds) in zip(runs, pool.map(work, runs)):
                bad = [check for check in checks if not check.ok]
                passed += len(checks) - len(bad)
                failed += len(bad)
                print(
                    f"{run.client:<12} {run.transport:<9} {run.era:<7} {run.what:<10} "
                    f"{len(checks) - len(bad):>6} {len(bad):>6} {seconds:>8.1f}",
                    flush=True,
                )
                for check in bad:
                    print(f"    FAILED {check.name}\n           {check.detail[:1500]}", flush=True)
        except BaseException:
            # Those under way clean up behind them, and no others are begun.
            for process in multiprocessing.active_children():
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
    print(f"details: {arguments.cache / 'results'}")
    print(f"{passed} passed, {failed} failed")
    # No check at all is no success.
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
