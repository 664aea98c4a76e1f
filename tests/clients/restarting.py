"""Clients whose server is stopped, or killed, and started again on the same files while they are connected.

None of them is told: each goes on in its session, which an official client does not begin anew by itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from expectations import Check
from parts import Stage, call, stage
from processes import HERE, STOP_SECONDS, Server

CLIENTS = ["python-2", "python-1", "typescript-2", "typescript-1"]

STOCK = {"sku": "TEA-001"}
SIGNALS = ["TERM", "KILL"]


def carry_out(client: str, binary: Path, config: Path, cache: Path) -> list[Check]:
    """All checks of one client."""
    with stage(client, "http", "legacy", "restarted", config, cache) as here:
        command = [binary.absolute(), "start", "--transport", "http", "--config", here.home / config.name, "--port"]
        server = Server([*command, "{port}"], here.env, here.results / "server.log")
        noted = here.results / "server.pid"
        noted.write_text(str(server.process.pid))
        # Left alone by whoever waits for it, or its end would not be seen by the others.
        command = [str(word) for word in [*command, server.port]]
        try:
            _restarted(here, server.port, noted, command)
        finally:
            ended = _end(int(noted.read_text()))
            here.check("the server stops when asked", ended, "it had to be killed")
            server.process.wait(STOP_SECONDS)
    return here.checks


def _restarted(here: Stage, port: int, noted: Path, command: list[str]) -> None:
    steps = [call("before", "inventory-check", STOCK)]
    for name in SIGNALS:
        log = here.results / f"server-after-{name}.log"
        restart = [sys.executable, str(HERE / "restart.py"), str(noted), name, str(log), str(port), *command]
        steps.append({"id": name, "do": "beside", "command": restart})
        steps += [call(f"after {name}", "inventory-check", STOCK), {"id": f"listed after {name}", "do": "tools"}]
    part = here.play("restarted", "manager", steps, port=port)
    if not part.is_complete:
        return
    before = part.outcomes["before"]
    part.check("it is answered before", before.get("isError") is False, before)
    for name in SIGNALS:
        restart = part.outcomes[name]
        part.check(f"the server is started again after {name}", restart.get("status") == 0, restart)
        after = part.outcomes[f"after {name}"]
        is_same = after.get("isError") is False and after.get("text") == before.get("text")
        part.check(f"it is answered after {name} as before", is_same, after)
        listed = part.outcomes[f"listed after {name}"]
        part.check(f"tools are listed after {name}", len(listed.get("tools", [])) > 0, listed)
        said = (here.results / f"server-after-{name}.log").read_text(errors="replace")
        part.check(f"its session was restored after {name}", '"sessions were restored"' in said, said[-800:])


def _end(process: int) -> bool:
    """Whether it ends when asked. It is nobody's child who could wait for it."""
    for name in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(process, name)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            try:
                state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                state = "Z"
            if state == "Z":
                return name == signal.SIGTERM
            time.sleep(0.05)
    return False
