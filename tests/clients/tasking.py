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
    # With the same package inside.
    "inspector": ["legacy", "modern"],
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
        _again("unknown", "no-such-task"),
    ]
    if _cancels(here):
        steps.append(_task("cancelled", "slow_compute", {"seconds": 120}, do="cancel"))
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
    _failed(part, "failing", "a tool that fails says so", "as it always does")
    broken = see["broken"]
    # Of a task of 2025-11-25 that failed the package has no more than the status message.
    is_error = _refused(part, broken, None if _tells_message_only(here) else -32603)
    is_error = is_error and "internal error" in broken["error"]["message"]
    part.check("a call that breaks down is an error", is_error, broken)
    _never(part)
    _waiting(part)
    _cancelled(part)
    part.check("an unknown task is unknown", _refused(part, see["unknown"], NO_TASK), see["unknown"])
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


def _cancelled(part: Part) -> None:
    if _cancels(part.where):
        outcome = part.outcomes["cancelled"]
        part.check("a task is cancelled", outcome.get("statuses") == ["working", "cancelled"], outcome)


def _never(part: Part) -> None:
    """A tool that must not be a task."""
    outcome = part.outcomes["never"]
    if part.where.client in ("python-1", "typescript-1"):
        # They ask for it all the same.
        part.check("a tool that is never a task is none", _refused(part, outcome, -32601), outcome)
    else:
        ok = outcome.get("task", "?") is None and outcome.get("text") == "Hello, Ada!"
        part.check("a tool that is never a task is none", ok, outcome)


def _waiting(part: Part) -> None:
    """A tool that must be a task, called as if it were not."""
    outcome = part.outcomes["waiting"]
    if (part.where.client, part.where.era) == ("inspector", "legacy"):
        # It has read that it must be one.
        ok = _refused(part, outcome, None) and "as it always does" in outcome["error"]["message"]
    elif part.where.era == "legacy":
        ok = _refused(part, outcome, -32601)
    elif part.where.client == "typescript-2":
        # The SDK itself, beside the package, has not said that it knows the extension.
        needed = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        ok = _refused(part, outcome, -32021) and outcome["error"]["data"] == {"requiredCapabilities": needed}
    else:
        ok = outcome.get("isError") is True and "as it always does" in outcome["text"]
    part.check("a tool that is always a task is no plain call", ok, outcome)


def _listed(part: Part) -> None:
    """All tasks are listed, the latest first, as they are."""
    expected = {"slow": "completed", "failing": "failed", "broken": "failed"}
    if part.where.client == "inspector":
        expected["waiting"] = "failed"
    if _cancels(part.where):
        expected["cancelled"] = "cancelled"
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
    ]
    if _cancels(here):
        long = {**FORECAST, "weeks": 50, "seconds": 60}
        steps.append(_task("cancelled", "price-forecast", long, do="cancel"))
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
    _failed(part, "failing", "a handler that fails says why", "SUP-NOWHERE")
    _failed(part, "invalid", "invalid arguments are refused", "/lines")
    stock = _json(see["quick"].get("text")).get("items") or [{}]
    part.check("a quick call is answered", stock[0].get("sku") == "TEA-001", see["quick"])
    _cancelled(part)
    if not modern:
        outcome = see["list"]
        if here.transport == "stdio":
            statuses = [task["status"] for task in outcome.get("tasks") or []]
            expected = ["completed", "failed", "failed", "completed", *["cancelled"] * _cancels(here)]
            part.check("they are listed, the latest first", statuses == expected[::-1], outcome)
        elif _has_the_package(here):
            # It has seen that there are none, and does not ask.
            is_none = outcome.get("failure") == "unsupported" or outcome.get("tasks") == []
            part.check("no lists over http", is_none, outcome)
        else:
            # Clients that are not told apart would see each other's.
            part.check("no lists over http", _refused(part, outcome, -32601), outcome)
    task = forecast.get("task")
    _others(here, server, task)
    _later(here, server, task, forecast)


def _later(here: Stage, server: dict, task: str | None, before: dict) -> None:
    """Another connection; over stdio another server, too."""
    steps = [_again("forecast", task)] if _shows_ids(here) else []
    part = here.play("manager later", "manager", steps, **server, answers=ANSWERS)
    if part.is_complete and steps:
        after = part.outcomes["forecast"]
        same = after.get("status") == "completed" and _json(after.get("text")) == _json(before["text"]) != {}
        part.check("what came of a task is kept", same, after)


def _others(here: Stage, server: dict, task: str | None) -> None:
    steps = [
        *([_again("foreign", task)] if _shows_ids(here) else []),
        _again("unknown", "no-such-task"),
        _task("denied", "stock-write-off", {"sku": "CUP-001", "quantity": 1, "reason": "damaged"}),
        _task("hidden", "margin-simulation", {"discount_percent": 10}),
    ]
    part = here.play("warehouse", "warehouse", steps, **server, answers=ANSWERS)
    if not part.is_complete:
        return
    see = part.outcomes
    if _shows_ids(here):
        part.check("somebody else's task is unknown", _refused(part, see["foreign"], NO_TASK), see["foreign"])
        part.check("and nothing tells them apart", see["foreign"].get("error") == see["unknown"].get("error"), see)
    denied = see["denied"]
    if here.era == "modern":
        ok = denied.get("isError") is True and "permission" in denied["text"]
    else:
        # Its client takes a task or an error.
        ok = _refused(part, denied, -32003) and "permission" in json.dumps(denied["error"])
    part.check("a task needs the permission its call needs", ok, denied)
    code = -32602 if here.era == "modern" else -32001
    part.check("no task of a hidden tool", _refused(part, see["hidden"], code), see["hidden"])


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
CANCELLED = [("tool/price-forecast", "cancelled"), ("task/price-forecast", "succeeded")]


def _ledger(here: Stage) -> None:
    """Tasks are calls like all others, and that one was cancelled is recorded too.

    The table follows a moment after the calls, or when a server starts again: the last part
    is none that calls.
    """
    path = here.home / "data" / "ledger.db"
    query = "SELECT principal, kind, capability, outcome FROM call ORDER BY start_sequence"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as ledger:
        rows = ledger.execute(query).fetchall()
    expected = RECORDED
    if here.client == "inspector":
        # It does not ask for what it has not seen in the list.
        expected = [row for row in RECORDED if row[2:] not in CANCELLED and row[2] != "tool/margin-simulation"]
    here.check("the ledger has every call once, and how it ended", rows == expected, rows)


def _cancels(here: Stage) -> bool:
    """Whether the client can be made to cancel: what the Inspector is told next waits for the call."""
    return here.client != "inspector"


def _shows_ids(here: Stage) -> bool:
    """Whether the client says which task it was. The Inspector has only what is in the result."""
    return (here.client, here.era) != ("inspector", "modern")


def _has_the_package(here: Stage) -> bool:
    return here.client in ("typescript-2", "inspector")


def _answers_in_tasks(here: Stage) -> bool:
    """Whether the client can be asked by a task.

    The package waits for a task of 2025-11-25 to go on, and does not come for what it asks
    ("the requestor should call tasks/result", says the revision).
    """
    return not (_has_the_package(here) and here.era == "legacy")


def _tells_message_only(here: Stage) -> bool:
    """Whether the client has no more than its status message of a task that failed."""
    return _has_the_package(here) and here.era == "legacy"


def _came(part: Part, id: str, what: str, *, text: Any, asks: bool = False) -> None:
    """A task went through its states and has this result."""
    outcome = part.outcomes[id]
    ok = outcome.get("text") == text and outcome.get("isError") is False
    part.check(f"{id}: {what}", ok, outcome)
    if _shows_ids(part.where):
        part.check(f"{id}: it is a task", isinstance(outcome.get("task"), str), outcome)
    if part.where.client == "inspector":
        # It does not show how.
        return
    path = ["working", *["input_required"] * asks, "completed"]
    seen = outcome.get("statuses") or []
    # The SDK waits for the result of a task that asks, and then does not look at its status again.
    fits = seen == path or (asks and part.where.client == "typescript-1" and seen == path[:-1])
    part.check(f"{id}: it goes from state to state", fits, outcome)
    kept = outcome.get("keep")
    ok = kept == KEEP if part.where.era == "legacy" else isinstance(kept, int) and kept >= 3_600_000
    part.check(f"{id}: it is said for how long it is kept", ok, kept)


def _failed(part: Part, id: str, what: str, words: str) -> None:
    """A call came to a result that is an error."""
    outcome = part.outcomes[id]
    if _tells_message_only(part.where):
        ok = words in (outcome.get("error") or {}).get("message", "")
    else:
        ok = outcome.get("isError") is True and words in outcome["text"]
    part.check(f"{id}: {what}", ok, outcome)
    statuses = outcome.get("statuses")
    if part.where.client == "inspector":
        return
    if part.where.era == "legacy":
        ok = statuses == ["working", "failed"]
    else:
        # Having a result it is completed; or it was too quick to become a task at all.
        ok = statuses in (["working", "completed"], ["completed"], [])
    part.check(f"{id}: it goes from state to state", ok, outcome)


def _refused(part: Part, outcome: dict, code: int | None) -> bool:
    """Whether a step was refused with this code, which the Inspector does not show."""
    error = outcome.get("error")
    return error is not None and error["code"] == (None if part.where.client == "inspector" else code)


def _json(text: str | None) -> dict:
    try:
        return json.loads(text or "")
    except ValueError:
        return {}
