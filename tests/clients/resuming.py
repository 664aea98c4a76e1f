"""Clients whose connection ends in the middle of a call, and who come back for the answer.

Once because the server hangs up (2025-11-25, Streamable HTTP), by tools of the fixture
that do; once because the connection is lost, under calls of the retail example.
"""

from __future__ import annotations

import json
from pathlib import Path

from expectations import Check
from parts import Stage, call, no_fixture, stage
from processes import Server, end
from wire import Wire

# Of the official clients those that know how to come back. The Inspector is one of them in disguise.
CLIENTS = ["python-2", "python-1", "typescript-2", "typescript-1"]

ANSWER = "The client has come back."
FORECAST = {"sku": "TEA-001", "weeks": 4}


def carry_out(client: str, binary: Path, fixture: Path, config: Path, cache: Path) -> list[Check]:
    """All checks of one client."""
    if missing := no_fixture(fixture):
        return missing
    with stage(client, "http", "legacy", "resumed", config, cache) as here:
        command = [fixture.absolute(), "--port", "{port}"]
        server = Server(command, here.env, here.results / "fixture.log", healthy=404)
        try:
            _hung_up(here, server.port)
        finally:
            # It has no end of its own, so nothing is asked of how it ends.
            end(server.process)
        command = [binary.absolute(), "start", "--transport", "http", "--port", "{port}"]
        server = Server([*command, "--config", here.home / config.name], here.env, here.results / "server.log")
        try:
            _lost(here, server.port)
        finally:
            status = end(server.process)
            here.check("the server stops when asked", status == 0, f"status {status}")
    return here.checks


def _hung_up(here: Stage, port: int) -> None:
    steps = [
        call("async", "test_reconnection", {}, progress=True),
        call("blocking", "test_reconnection_blocking", {}, progress=True),
        call("silent", "test_reconnection", {}),
    ]
    with Wire(port, cuts=False) as wire:
        part = here.play("hung up on", "fixture", steps, port=wire.port)
    if part.is_complete:
        for id in ("async", "blocking", "silent"):
            outcome = part.outcomes[id]
            is_answer = outcome.get("text") == ANSWER and outcome.get("isError") is False
            part.check(f"{id}: the answer arrives", is_answer, outcome)
        for id in ("async", "blocking"):
            part.check(f"{id}: what was said before and after, once", part.done(id) in ([1], [1, 2]), part.outcomes[id])
    part.check("it came back for each", len(set(wire.comebacks)) == len(wire.comebacks) == len(steps), wire.comebacks)


def _lost(here: Stage, port: int) -> None:
    steps = [
        # Long enough for a stream to begin although nothing is said on it.
        call("silent", "price-forecast", {**FORECAST, "seconds": 2.5}),
        call("speaking", "price-forecast", {**FORECAST, "seconds": 0.8}, progress=True),
        call("quick", "inventory-check", {"sku": "TEA-001"}),
    ]
    with Wire(port, cuts=True) as wire:
        part = here.play("lost", "manager", steps, port=wire.port)
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


def _json(text: str | None) -> dict:
    try:
        return json.loads(text or "")
    except ValueError:
        return {}
