"""What the official suites ask that stdio has no word for, so that it is left out there.

An entry is a scenario, or one of its checks as SCENARIO:CHECK, with the reason. It counts neither
as passed nor as failed. Both lists only shrink: an entry that is not needed fails the run.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

# These do not pass, as nothing reaches the server that it could refuse.
NOT_PASSED = {
    "dns-rebinding-protection": "Host and Origin are headers",
    "http-header-validation": "Mcp-Method and Mcp-Name are headers",
    "http-custom-header-server-validation": "Mcp-Param-* are headers",
    "tasks-request-headers": "Mcp-Method and Mcp-Name are headers",
    "server-sse-polling": "event ids and Last-Event-ID belong to SSE",
    "server-stateless:sep-2575-http-server-header-mismatch-400": "MCP-Protocol-Version is a header",
    # Over HTTP, a header says that these are of 2026-07-28. Over stdio only _meta could say it:
    # without, they are of the revisions before, which have no server/discover.
}

# These pass whatever the server does, as stdio_bridge.py makes up what they look at.
PASSED_BY_BRIDGE = {
    "server-session-lifecycle": "DELETE and 404 are the bridge's",
    "server-initialize:server-session-id-visible-ascii": "the session's id is the bridge's",
    "server-stateless:sep-2575-http-server-unsupported-version-400": "the status is the bridge's",
    "server-stateless:sep-2575-missing-capability-http-400": "the status is the bridge's",
}

WRONG = {"FAILURE", "WARNING"}


@dataclass
class LeftOut:
    """What one run did not count, and how the rest of it went."""

    met: set[str] = field(default_factory=set)
    stale: list[str] = field(default_factory=list)
    passed: int = 0
    failed: int = 0
    # Of each scenario with an entry: the checks that went wrong and have none.
    wrong: dict[str, list[str]] = field(default_factory=dict)


def entries_of(scenario: str) -> set[str]:
    listed = {*NOT_PASSED, *PASSED_BY_BRIDGE}
    return {entry for entry in listed if entry.partition(":")[0] == scenario}


def leave_out(results: Path) -> LeftOut:
    """Looks at what the suite wrote down."""
    found = LeftOut()
    for path in sorted(results.glob("server-*/checks.json")):
        name = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", path.parent.name)
        if name is None or not (entries := entries_of(name[1])):
            continue
        rest = json.loads(path.read_text("utf-8"))
        for entry in sorted(entries):
            check = entry.partition(":")[2]
            concerned = [it for it in rest if check in ("", it["id"])]
            if not concerned:
                continue
            found.met.add(entry)
            statuses = [it["status"] for it in concerned]
            passes = "SUCCESS" in statuses and WRONG.isdisjoint(statuses)
            if passes is not (entry in PASSED_BY_BRIDGE):
                found.stale.append(entry)
                continue
            found.passed += statuses.count("SUCCESS")
            found.failed += statuses.count("FAILURE")
            rest = [it for it in rest if it not in concerned]
        found.wrong[name[1]] = sorted({it["id"] for it in rest if it["status"] in WRONG})
    return found
