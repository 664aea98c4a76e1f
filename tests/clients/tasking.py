"""Clients that have calls run as tasks, and fetch later what comes of them.

Those of 2025-11-25, which a client asks for, and the extension of 2026-07-28, where the
server decides. Once with the fixture, whose tools ask and fail in every way; once with the
retail example, whose handlers have never heard of tasks.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from expectations import Check
from parts import Part, Stage, call, no_fixture, stage
from processes import Server, end

# With the eras in which they can.
CLIENTS = {
    # Its core has no tasks any more; the extension is its driver's, on what the SDK has for extensions.
    "python-2": ["modern"],
    "python-1": ["legacy"],
    # With the official package for tasks.
    "typescript-2": ["legacy", "modern"],
    "typescript-1": ["legacy"],
}

# What the user says when asked this. Everything else is declined.
ANSWERS = {
    "Delete old.txt?": {"confirm": True},
    "The first value?": {"value": "one"},
    "The second value?": {"value": "two"},
    "What is your name?": {"name": "Ada"},
}

# In milliseconds: what clients of 2025-11-25 ask for, and what is configured for the others.
KEEP = 90_000
NO_TASK = -32602
FORECAST = {"sku": "TEA-001", "weeks": 4, "seconds": 1.2}


def carry_out(
    client: str, transport: str, era: str, binary: Path, fixture: Path, config: Path, cache: Path
) -> list[Check]:
    """All checks of one client."""
    if missing := no_fixture(fixture):
        return missing
    with stage(client, transport, era, "tasks", config, cache) as here:
        with _serving(here, [fixture.absolute()], healthy=404) as server:
            _fixture(here, server)
        # Every call that does not end at once becomes a task, of clients that know the extension.
        here.env["MCP_SERVER_TASKS__AFTER_SECONDS"] = "0"
        command = [binary.absolute(), "start", "--config", here.home / config.name, "--transport", transport]
        with _serving(here, command) as server:
            _retail(here, server)
        _ledger(here)
    return here.checks


@contextmanager
def _serving(here: Stage, command: list, healthy: int = 200):
    """What says where the server is: over stdio the client starts it, again for each part."""
    if here.transport == "stdio":
        names = ["MCP_SERVER_TASKS__AFTER_SECONDS"]
        yield {"command": command, "more_env": {name: here.env[name] for name in names if name in here.env}}
        return
    server = Server([*command, "--port", "{port}"], here.env, here.results / f"server-{healthy}.log", healthy=healthy)
    try:
        yield {"port": server.port}
    finally:
        status = end(server.process)
        # The fixture has no end of its own, so nothing is asked of how it ends.
        if healthy == 200:
            here.check("the server stops when asked", status == 0, f"status {status}")


def _task(id: str, tool: str, arguments: dict | None = None, do: str = "task") -> dict:
    return {"id": id, "do": do, "tool": tool, "arguments": arguments or {}, "keep": KEEP}


def _again(id: str, task: str) -> dict:
    return {"id": id, "do": "again", "task": task}


def _fixture(here: Stage, server: dict) -> None:
    modern = here.era == "modern"
    steps = [
        _task("slow", "slow_compute", {"seconds": 1, "label": "sum"}),
        _task("failing", "failing_job"),
        _task("broken", "protocol_error_job"),
        _task("never", "greet", {"name": "Ada"}),
        call("waiting", "failing_job", {}),
        _task("cancelled", "slow_compute", {"seconds": 120}, do="cancel"),
        _again("unknown", "no-such-task"),
    ]
    if _answers_in_tasks(here):
        steps += [
            _task("accepted", "confirm_delete", {"filename": "old.txt"}),
            _task("declined", "confirm_delete", {"filename": "new.txt"}),
            _task("two questions", "multi_input"),
            _task("question first", "test_tool_with_task"),
        ]
    if not modern:
        steps.append({"id": "list", "do": "list"})
    part = here.play("fixture", "fixture", steps, **server, answers=ANSWERS)
    if not part.is_complete:
        return
    see = part.outcomes
    _came(part, "slow", "a task comes to its end", text="sum: 42")
    _failed(part, "failing", "a tool that fails says so", "as it always does", "the tool failed")
    broken = (see["broken"].get("error") or {}) | {"statuses": see["broken"].get("statuses")}
    # The package tells the message alone, as the status of the task.
    code = None if _tells_message_only(here) else -32603
    is_error = broken.get("code") == code and "internal error" in broken.get("message", "")
    part.check("a call that breaks down is an error", is_error, see["broken"])
    _never(part)
    _waiting(part)
    cancelled = see["cancelled"]
    is_cancelled = cancelled.get("statuses") == ["working", "cancelled"]
    part.check("a task is cancelled", is_cancelled, cancelled)
    part.check("an unknown task is unknown", _refused(see["unknown"], NO_TASK), see["unknown"])
    if _answers_in_tasks(here):
        for id, questions, text in [
            ("accepted", ["Delete old.txt?"], "old.txt is deleted."),
            ("declined", ["Delete new.txt?"], "new.txt is kept."),
            ("two questions", ["The first value?", "The second value?"], "Both have been answered."),
        ]:
            _came(part, id, "a task asks, and goes on", text=text, asks=True)
            part.check(f"{id}: its questions are asked once", sorted(see[id]["asked"]) == questions, see[id])
        # With the extension it asks before it is a task.
        _came(part, "question first", "its questions are answered", text="Worked for Ada.", asks=not modern)
        asked = see["question first"].get("asked")
        part.check("question first: its question is asked once", asked == ["What is your name?"], asked)
    if not modern:
        _listed(part)


def _never(part: Part) -> None:
    """A tool that must not be a task."""
    outcome = part.outcomes["never"]
    if part.where.client in ("python-1", "typescript-1"):
        # They ask for it all the same.
        part.check("a tool that is never a task is none", _refused(outcome, -32601), outcome)
    else:
        ok = outcome.get("task", "?") is None and outcome.get("text") == "Hello, Ada!"
        part.check("a tool that is never a task is none", ok, outcome)


def _waiting(part: Part) -> None:
    """A tool that must be a task, called as if it were not."""
    outcome = part.outcomes["waiting"]
    if part.where.era == "legacy":
        ok = _refused(outcome, -32601)
    elif part.where.client == "typescript-2":
        # The SDK itself, beside the package, has not said that it knows the extension.
        needed = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        ok = _refused(outcome, -32021) and outcome["error"]["data"] == {"requiredCapabilities": needed}
    else:
        ok = outcome.get("isError") is True and "as it always does" in outcome["text"]
    part.check("a tool that is always a task is no plain call", ok, outcome)


def _listed(part: Part) -> None:
    """All tasks are listed, the latest first, as they are."""
    expected = {"slow": "completed", "failing": "failed", "broken": "failed", "cancelled": "cancelled"}
    if _answers_in_tasks(part.where):
        expected |= dict.fromkeys(["accepted", "declined", "two questions", "question first"], "completed")
    listed = part.outcomes["list"].get("tasks") or []
    statuses = [task["status"] for task in reversed(listed)]
    part.check("they are listed, the latest first", statuses == list(expected.values()), part.outcomes["list"])
    known = {it["task"]: id for id, it in part.outcomes.items() if it.get("task")}
    wrong = [task for task in listed if expected.get(known.get(task["task"]), task["status"]) != task["status"]]
    names = {task["task"] for task in listed}
    part.check("each under its own name", known and not wrong and len(names) == len(listed), wrong)


def _retail(here: Stage, server: dict) -> None:
    modern = here.era == "modern"
    steps = [
        _task("forecast", "price-forecast", FORECAST),
        _task("failing", "supplier-ping", {"supplier_id": "SUP-NOWHERE"}),
        _task("invalid", "stock-reorder", {"lines": "COF-001", "priority": "soon"}),
        _task("quick", "inventory-check", {"sku": "TEA-001"}),
        _task("cancelled", "price-forecast", {**FORECAST, "weeks": 50, "seconds": 60}, do="cancel"),
    ]
    if not modern:
        steps.append({"id": "list", "do": "list"})
    part = here.play("manager", "manager", steps, **server, answers=ANSWERS)
    if not part.is_complete:
        return
    see = part.outcomes
    forecast = see["forecast"]
    weeks = [week["week"] for week in _json(forecast.get("text")).get("forecast", [])]
    part.check("a handler's answer arrives whole", weeks == [1, 2, 3, 4], forecast)
    _came(part, "forecast", "a handler runs as a task", text=forecast.get("text"))
    _failed(part, "failing", "a handler that fails says why", "SUP-NOWHERE", "the tool failed")
    _failed(part, "invalid", "invalid arguments are refused", "/lines", "the tool failed")
    stock = _json(see["quick"].get("text")).get("items") or [{}]
    part.check("a quick call is answered", stock[0].get("sku") == "TEA-001", see["quick"])
    part.check("a task is cancelled", see["cancelled"].get("statuses") == ["working", "cancelled"], see["cancelled"])
    if not modern:
        outcome = see["list"]
        if here.client == "typescript-2" and here.transport == "http":
            # The package has seen that there are none, and does not ask.
            part.check("no lists over http", outcome.get("failure") == "unsupported", outcome)
        elif here.transport == "stdio":
            statuses = [task["status"] for task in outcome.get("tasks") or []]
            ok = statuses[0] == "cancelled" and statuses[-1] == "completed" and len(statuses) >= 4
            part.check("they are listed, the latest first", ok, outcome)
        else:
            # Clients that are not told apart would see each other's.
            part.check("no lists over http", _refused(outcome, -32601), outcome)
    task = forecast.get("task")
    if not isinstance(task, str):
        return
    _others(here, server, task)
    _later(here, server, task, forecast)


def _later(here: Stage, server: dict, task: str, before: dict) -> None:
    """Another connection; over stdio another server, too."""
    part = here.play("manager later", "manager", [_again("forecast", task)], **server, answers=ANSWERS)
    if part.is_complete:
        after = part.outcomes["forecast"]
        same = after.get("status") == "completed" and _json(after.get("text")) == _json(before["text"]) != {}
        part.check("what came of a task is kept", same, after)


def _others(here: Stage, server: dict, task: str) -> None:
    steps = [
        _again("foreign", task),
        _again("unknown", "no-such-task"),
        _task("denied", "stock-write-off", {"sku": "CUP-001", "quantity": 1, "reason": "damaged"}),
        _task("hidden", "margin-simulation", {"discount_percent": 10}),
    ]
    part = here.play("warehouse", "warehouse", steps, **server, answers=ANSWERS)
    if not part.is_complete:
        return
    see = part.outcomes
    part.check("somebody else's task is unknown", _refused(see["foreign"], NO_TASK), see["foreign"])
    part.check("and nothing tells them apart", see["foreign"].get("error") == see["unknown"].get("error"), see)
    denied = see["denied"]
    ok = _refused(denied, -32003) and denied["error"]["data"].get("reason") == "permission"
    part.check("a task needs the permission its call needs", ok, denied)
    code = -32602 if here.era == "modern" else -32001
    part.check("no task of a hidden tool", _refused(see["hidden"], code), see["hidden"])


# What the ledger has in the end, in the order in which it began.
RECORDED = [
    ("manager", "tool", "tool/price-forecast", "succeeded"),
    ("manager", "tool", "tool/supplier-ping", "failed"),
    ("manager", "tool", "tool/stock-reorder", "invalid"),
    ("manager", "tool", "tool/inventory-check", "succeeded"),
    ("manager", "tool", "tool/price-forecast", "cancelled"),
    ("manager", "other", "task/price-forecast", "succeeded"),
    ("warehouse", "tool", "tool/stock-write-off", "denied"),
    ("warehouse", "tool", "tool/margin-simulation", "denied"),
]


def _ledger(here: Stage) -> None:
    """Tasks are calls like all others, and that one was cancelled is recorded too.

    The table follows a moment after the calls, or when a server starts again: the last part
    is none that calls.
    """
    path = here.home / "data" / "ledger.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as ledger:
        rows = ledger.execute("SELECT principal, kind, capability, outcome FROM call ORDER BY start_sequence").fetchall()
    here.check("the ledger has every call once, and how it ended", rows == RECORDED, rows)


def _answers_in_tasks(here: Stage) -> bool:
    """Whether the client can be asked by a task.

    The package waits for a task of 2025-11-25 to go on, and does not come for what it asks
    ("the requestor should call tasks/result", says the revision).
    """
    return (here.client, here.era) != ("typescript-2", "legacy")


def _tells_message_only(here: Stage) -> bool:
    """Whether the client has no more than its status message of a task that failed."""
    return (here.client, here.era) == ("typescript-2", "legacy")


def _came(part: Part, id: str, what: str, *, text: Any, asks: bool = False) -> None:
    """A task went through its states and has this result."""
    outcome = part.outcomes[id]
    ok = isinstance(outcome.get("task"), str) and outcome.get("text") == text and outcome.get("isError") is False
    part.check(f"{id}: {what}", ok, outcome)
    path = ["working", *["input_required"] * asks, "completed"]
    seen = outcome.get("statuses") or []
    # The SDK waits for the result of a task that asks, and then does not look at its status again.
    fits = seen == path or (asks and part.where.client == "typescript-1" and seen == path[:-1])
    part.check(f"{id}: it goes from state to state", fits, outcome)
    kept = outcome.get("keep")
    ok = kept == KEEP if part.where.era == "legacy" else isinstance(kept, int) and kept >= 3_600_000
    part.check(f"{id}: it is said for how long it is kept", ok, kept)


def _failed(part: Part, id: str, what: str, words: str, message: str) -> None:
    """A call came to a result that is an error."""
    outcome = part.outcomes[id]
    if _tells_message_only(part.where):
        ok = message in (outcome.get("error") or {}).get("message", "")
    else:
        ok = outcome.get("isError") is True and words in outcome["text"]
    part.check(f"{id}: {what}", ok, outcome)
    statuses = outcome.get("statuses")
    if part.where.era == "legacy":
        ok = statuses == ["working", "failed"]
    else:
        # Having a result it is completed; or it was too quick to become a task at all.
        ok = statuses in (["working", "completed"], ["completed"], [])
    part.check(f"{id}: it goes from state to state", ok, outcome)


def _refused(outcome: dict, code: int) -> bool:
    return (outcome.get("error") or {}).get("code") == code


def _json(text: str | None) -> dict:
    try:
        return json.loads(text or "")
    except ValueError:
        return {}
