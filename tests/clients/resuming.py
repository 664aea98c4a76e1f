"""Clients whose connection ends in the middle of a call, and who come back for the answer.

Once because the server hangs up (2025-11-25, Streamable HTTP), by tools of the fixture
that do; once because the connection is lost, under calls of the retail example.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import uuid
from pathlib import Path
from typing import Any

from expectations import Check
from processes import MARK, STEP_SECONDS, STOP_SECONDS, Server, drive, driver_command, end, environment, wait_for_strays
from wire import Wire

# Of the official clients those that know how to come back. The Inspector is one of them in disguise.
CLIENTS = ["python-2", "python-1", "typescript-2", "typescript-1"]

REVISION = "2025-11-25"
ANSWER = "The client has come back."
FORECAST = {"sku": "TEA-001", "weeks": 4}


def carry_out(client: str, binary: Path, fixture: Path, config: Path, cache: Path) -> list[Check]:
    """All checks of one client."""
    if not fixture.exists():
        why = f"{fixture} is not there: build it (cargo build -p conformance-server), or name it (--fixture)"
        return [Check("there is a server that hangs up", False, why)]
    mark = uuid.uuid4().hex
    env = environment(cache, mark)
    results = cache / "results" / f"{client}-http-resumed"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    checks: list[Check] = []
    try:
        with tempfile.TemporaryDirectory(prefix="owlclaw-clients-") as name:
            home = Path(name) / "application"
            shutil.copytree(config.parent, home, ignore=shutil.ignore_patterns("*.db*", "__pycache__"))
            driver = driver_command(client, cache)
            command = [fixture.absolute(), "--port", "{port}"]
            server = Server(command, env, results / "fixture.log", healthy=404)
            try:
                checks += _hung_up(driver, server.port, env, results)
            finally:
                # It has no end of its own, so nothing is asked of how it ends.
                end(server.process)
            command = [binary.absolute(), "start", "--transport", "http", "--port", "{port}"]
            server = Server([*command, "--config", home / config.name], env, results / "server.log")
            try:
                checks += _lost(driver, server.port, env, results)
            finally:
                status = end(server.process)
                checks.append(Check("the server stops when asked", status == 0, f"status {status}"))
    except RuntimeError as error:
        checks.append(Check("the server starts", False, str(error)))
    left = wait_for_strays(mark, STOP_SECONDS)
    checks.append(Check("nothing is left running", not left, f"still running: {left}"))
    for process in left:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return checks


def _hung_up(driver: list[str], port: int, env: dict[str, str], results: Path) -> list[Check]:
    steps = [
        _call("async", "test_reconnection", {}, progress=True),
        _call("blocking", "test_reconnection_blocking", {}, progress=True),
        _call("silent", "test_reconnection", {}),
    ]
    with Wire(port, cuts=False) as wire:
        part = _Part("hung up on", *_driven(driver, wire, "fixture", steps, env, results), steps)
    if part.is_complete:
        for id in ("async", "blocking", "silent"):
            outcome = part.outcomes[id]
            is_answer = outcome.get("text") == ANSWER and outcome.get("isError") is False
            part.check(f"{id}: the answer arrives", is_answer, outcome)
        for id in ("async", "blocking"):
            part.check(f"{id}: what was said before and after, once", part.done(id) in ([1], [1, 2]), part.outcomes[id])
    part.check("it came back for each", len(set(wire.comebacks)) == len(wire.comebacks) == len(steps), wire.comebacks)
    return part.checks


def _lost(driver: list[str], port: int, env: dict[str, str], results: Path) -> list[Check]:
    steps = [
        # Long enough for a stream to begin although nothing is said on it.
        _call("silent", "price-forecast", {**FORECAST, "seconds": 2.5}),
        _call("speaking", "price-forecast", {**FORECAST, "seconds": 0.8}, progress=True),
        _call("quick", "inventory-check", {"sku": "TEA-001"}),
    ]
    with Wire(port, cuts=True) as wire:
        part = _Part("lost", *_driven(driver, wire, "manager", steps, env, results), steps)
    if part.is_complete:
        answers = [part.outcomes[id].get("text") for id in ("silent", "speaking")]
        is_forecast = answers[0] == answers[1] and len(_json(answers[0]).get("forecast", [])) == 4
        part.check("the answers arrive whole", is_forecast, answers)
        done = part.done("speaking")
        # The last report may be overtaken by the answer.
        part.check("what was said before and after, once", done in ([1, 2, 3], [1, 2, 3, 4]), done)
        part.check("a quick call needs none of it", part.outcomes["quick"].get("isError") is False, part.outcomes)
    part.check("its connection was lost twice", wire.lost == 2, wire.lost)
    part.check("it came back each time", len(set(wire.comebacks)) == len(wire.comebacks) == 2, wire.comebacks)
    return part.checks


def _call(id: str, tool: str, arguments: dict, progress: bool = False) -> dict:
    return {"id": id, "do": "call", "tool": tool, "arguments": arguments, "progress": progress}


def _driven(
    driver: list[str], wire: Wire, identity: str, steps: list[dict], env: dict[str, str], results: Path
) -> tuple[list[dict], str | None]:
    plan = {
        "transport": "http",
        "era": "legacy",
        "command": [],
        "cwd": "/",
        "env": {MARK: env[MARK], "PATH": env["PATH"]},
        "url": f"http://127.0.0.1:{wire.port}/mcp",
        "headers": {"X-MCP-Client-ID": identity},
        "timeout": STEP_SECONDS,
        "steps": steps,
    }
    return drive(driver, plan, env, results)


class _Part:
    """Collects checks about one driver's outcomes."""

    def __init__(self, name: str, outcomes: list[dict], trouble: str | None, steps: list[dict]) -> None:
        self.name = name
        self.checks: list[Check] = []
        self.outcomes = {outcome["id"]: outcome for outcome in outcomes if "id" in outcome}
        missing = [step["id"] for step in steps if step["id"] not in self.outcomes]
        self.is_complete = trouble is None and not missing
        self.check("the client ran to its end", self.is_complete, f"{trouble}; steps missing: {missing}")
        revisions = [outcome["connected"] for outcome in outcomes if "connected" in outcome]
        self.check(f"revision {REVISION} was agreed on", revisions == [REVISION], revisions)
        # That a connection was lost may be complained about.
        complaints = [it["complaint"] for it in outcomes if "complaint" in it and "disconnected" not in it["complaint"]]
        self.check("nothing but messages was received", not complaints, complaints)

    def check(self, name: str, ok: bool, seen: Any) -> None:
        detail = seen if isinstance(seen, str) else json.dumps(seen, ensure_ascii=False)
        self.checks.append(Check(f"{self.name}: {name}", bool(ok), f"seen: {detail}"))

    def done(self, id: str) -> list:
        """How far the call said it was, report by report."""
        return [step[0] for step in self.outcomes[id].get("progress") or []]


def _json(text: str | None) -> dict:
    try:
        return json.loads(text or "")
    except ValueError:
        return {}
