"""Starts servers and the official clients' drivers, and judges what they saw.

Called by run.sh, which installs the clients. Needs nothing but Python 3.10.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import expectations
import resuming
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
    """One client over one transport, in one era."""

    client: str
    transport: str
    era: str


BOTH = [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern")]
OLD = [("stdio", "legacy"), ("http", "legacy"), ("sse", "legacy")]
CLIENTS = {"python-2": BOTH, "python-1": OLD, "typescript-2": BOTH, "typescript-1": OLD, "inspector": BOTH}

# Not an era but what only its clients do: come back for answers. Its runs have their own plans.
RESUMED = "resumed"


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
                server = Server([*command, "--config", home / config.name], env, results / "server.log")
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
    parser.add_argument(
        "--fixture", type=Path, help="the conformance-server, whose tools hang up; beside the binary by default"
    )
    arguments = parser.parse_args()
    fixture = arguments.fixture or arguments.binary.parent / "conformance-server"

    # Ended by a signal, we still clean up behind us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    passed = failed = 0
    print(f"{'client':<14} {'over':<6} {'era':<7} {'passed':>6} {'failed':>6} {'seconds':>8}")
    for client, combinations in CLIENTS.items():
        for transport, era in [*combinations, *[("http", RESUMED)] * (client in resuming.CLIENTS)]:
            if (
                client not in (arguments.only or CLIENTS)
                or transport not in (arguments.transport or [transport])
                or (arguments.era or era) not in (era, "legacy" if era == RESUMED else era)
            ):
                continue
            started = time.monotonic()
            config = arguments.config.resolve()
            if era == RESUMED:
                checks = resuming.carry_out(client, arguments.binary, fixture, config, arguments.cache)
            else:
                checks = carry_out(Run(client, transport, era), arguments.binary, config, arguments.cache)
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
