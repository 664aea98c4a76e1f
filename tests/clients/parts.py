"""What runs with plans of their own have in common: the stage they are on, and their parts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expectations import Check
from processes import MARK, STEP_SECONDS, STOP_SECONDS, drive, driver_command, environment, wait_for_strays

# What clients complain with that have lost a connection.
LOST = ("disconnected", "fetch failed", "reconnect")

REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}


@dataclass
class Stage:
    """Where a client's run takes place: a fresh copy of the application, and what is known of it."""

    client: str
    transport: str
    era: str
    cache: Path
    results: Path
    work: Path
    home: Path
    env: dict[str, str]
    checks: list[Check] = field(default_factory=list)

    def play(
        self,
        part: str,
        identity: str,
        steps: list[dict],
        *,
        command: list | None = None,
        port: int | None = None,
        more_env: dict[str, str] | None = None,
        **more: Any,
    ) -> Part:
        """Has the client carry out the steps, with a server of its own (`command`) or the one on `port`."""
        plan = {
            "transport": self.transport,
            "era": self.era,
            "command": [str(word) for word in command or []],
            # Somewhere else: nothing may depend on the working directory.
            "cwd": str(self.work),
            "env": {"MCP_CLIENT_ID": identity, MARK: self.env[MARK], "PATH": self.env["PATH"], **(more_env or {})},
            "url": port and f"http://127.0.0.1:{port}/mcp",
            "headers": {"X-MCP-Client-ID": identity},
            "timeout": STEP_SECONDS,
            "steps": steps,
            **more,
        }
        results = self.results / part.replace(" ", "-")
        results.mkdir()
        outcomes, trouble = drive(driver_command(self.client, self.cache), plan, self.env, results)
        return Part(part, self, outcomes, trouble, steps, more.get("revision"))

    def check(self, name: str, ok: bool, seen: Any) -> None:
        detail = seen if isinstance(seen, str) else json.dumps(seen, ensure_ascii=False)
        self.checks.append(Check(name, bool(ok), f"seen: {detail}"))


@contextmanager
def stage(client: str, transport: str, era: str, what: str, config: Path, cache: Path) -> Iterator[Stage]:
    """Afterwards nothing may be left running; a server that does not start ends the run."""
    env = environment(cache, uuid.uuid4().hex)
    results = cache / "results" / f"{client}-{transport}-{era}-{what}"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="owlclaw-clients-") as name:
        work = Path(name)
        home = work / "application"
        shutil.copytree(config.parent, home, ignore=shutil.ignore_patterns("*.db*", "__pycache__"))
        here = Stage(client, transport, era, cache, results, work, home, env)
        try:
            yield here
        except RuntimeError as error:
            here.check("the server starts", False, str(error))
        finally:
            left = wait_for_strays(env[MARK], STOP_SECONDS)
            here.check("nothing is left running", not left, left)
            for process in left:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def no_fixture(fixture: Path) -> list[Check]:
    """The one check that fails where there is no fixture."""
    why = f"{fixture} is not there: build it (cargo build -p conformance-server), or name it (--fixture)"
    return [] if fixture.exists() else [Check("there is a fixture", False, why)]


class Part:
    """Collects checks about one driver's outcomes."""

    def __init__(
        self,
        name: str,
        where: Stage,
        outcomes: list[dict],
        trouble: str | None,
        steps: list[dict],
        revision: str | None = None,
    ) -> None:
        self.name, self.where = name, where
        self.outcomes = {outcome["id"]: outcome for outcome in outcomes if "id" in outcome}
        missing = [step["id"] for step in steps if step["id"] not in self.outcomes]
        self.is_complete = trouble is None and not missing
        self.check("the client ran to its end", self.is_complete, f"{trouble}; steps missing: {missing}")
        revision = revision or REVISIONS[where.era]
        revisions = [outcome["connected"] for outcome in outcomes if "connected" in outcome]
        self.check(f"revision {revision} was agreed on", revisions == [revision], revisions)
        # That a connection was lost may be complained about.
        said = [it["complaint"] for it in outcomes if "complaint" in it]
        complaints = [it for it in said if not any(word in it for word in LOST)]
        self.check("nothing but messages was received", not complaints, complaints)

    def check(self, name: str, ok: bool, seen: Any) -> None:
        self.where.check(f"{self.name}: {name}", ok, seen)

    def done(self, id: str) -> list:
        """How far the call said it was, report by report."""
        return [step[0] for step in self.outcomes[id].get("progress") or []]


def call(id: str, tool: str, arguments: dict, **more: Any) -> dict:
    """A step."""
    return {"id": id, "do": "call", "tool": tool, "arguments": arguments, "progress": False, **more}
