"""A tour of the retail example: a tool of every kind, called by clients of every kind.

Handlers, a program, the courier's web service as a skill binds it and as its document describes it,
and the application's state, as a tool and as a resource. The courier is the example's own.
"""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from expectations import Check
from parts import Part, Stage, call, stage
from processes import START_SECONDS, Server, end, free_port

# With the eras in which they go.
CLIENTS = {"python-2": ["legacy", "modern"], "inspector": ["legacy", "modern"]}

COURIER = "127.0.0.1:8790"
STATE = "state://low_stock"
PARCEL = {"order_id": "ORD-1001", "weight_grams": 2500}


def carry_out(client: str, transport: str, era: str, binary: Path, config: Path, cache: Path) -> list[Check]:
    """All checks of one client."""
    with stage(client, transport, era, "tour", config, cache) as here, _courier(here):
        command = [binary.absolute(), "start", "--config", here.home / config.name, "--transport", transport]
        if transport == "stdio":
            _judge(here.play("tour", "manager", _steps(), command=command))
        else:
            server = Server([*command, "--port", "{port}"], here.env, here.results / "server.log")
            try:
                _judge(here.play("tour", "manager", _steps(), port=server.port))
            finally:
                status = end(server.process)
                here.check("the server stops when asked", status == 0, f"status {status}")
    return here.checks


@contextmanager
def _courier(here: Stage):
    """The courier's service on a port of its own, which the application's files then name."""
    port = free_port()
    for path in here.home.rglob("*"):
        if path.suffix in (".md", ".yaml"):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(COURIER, f"127.0.0.1:{port}"), encoding="utf-8")
    log = here.results / "courier.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(here.home / "services" / "courier.py"), str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=here.env,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"the courier does not start: {log.read_text()}") from None
                time.sleep(0.02)
        yield
    finally:
        end(process)


def _steps() -> list[dict]:
    return [
        {"id": "resources", "do": "resources"},
        {"id": "state", "do": "read", "uri": STATE},
        call("sync handler", "inventory-check", {"sku": "TEA-001"}),
        call("async handler", "sales-report", {"month": "2026-05"}),
        call("slow handler", "price-forecast", {"sku": "TEA-001", "weeks": 3, "seconds": 0.3}, progress=True),
        call("command", "stock-count-sheet", {"category": "tea"}),
        call("command attacked", "stock-count-sheet", {"category": "tea'; touch /tmp/x; --help"}),
        call("binding", "courier-quote", {"weight_grams": 2500, "service": "standard"}),
        call("operation", "courier_createShipment", PARCEL),
        call("operation again", "courier_getShipment", {"shipment": "SHP-0001"}),
        call("operation refused", "courier_getShipment", {"shipment": "SHP-0001/../../quotes?weight_grams=1"}),
        call("operation strayed", "courier_getShipment", {"shipment": "SHP-0001?weight_grams=1#"}),
        call("operation that destroys", "courier_cancelShipment", {"shipment": "SHP-0001"}),
        call("state as a tool", "query_state", {"state_name": "low_stock"}),
    ]


def _judge(part: Part) -> None:
    if not part.is_complete:
        return
    said = part.outcomes

    def answers(id: str, **expected: object) -> None:
        structured = said[id].get("structured") or {}
        right = not said[id].get("isError", True) and expected.items() <= structured.items()
        part.check(f"{id} answers", right, said[id])

    uris = [it["uri"] for it in said["resources"].get("resources", [])]
    part.check("the state is listed", STATE in uris, uris)
    contents = said["state"].get("contents") or [{"base64": ""}]
    state = json.loads(base64.b64decode(contents[0]["base64"]) or "{}")
    part.check("the state is read", state.get("count", 0) > 0 and state["count"] == state["low"], said["state"])
    answers("sync handler", count=1)
    answers("async handler", month="2026-05")
    answers("slow handler", sku="TEA-001")
    answers("binding", price_cents=750, days=3)
    answers("operation", shipment="SHP-0001", status="booked", price_cents=750)
    answers("operation again", shipment="SHP-0001", status="booked")
    answers("operation that destroys", status="cancelled")
    answers("state as a tool", **{key: state.get(key) for key in ("count", "low")})
    text = said["command"].get("text", "")
    right = not said["command"].get("isError", True) and "TEA-001" in text and "COF-001" not in text
    part.check("the command answers", right, said["command"])
    refused = said["command attacked"]
    part.check("the command is not made to do else", refused.get("isError") is True, refused)
    for id, why in (("operation refused", "`..`"), ("operation strayed", "no such shipment")):
        right = said[id].get("isError") is True and why in said[id].get("text", "")
        part.check(f"an argument stays an argument of the operation ({id})", right, said[id])
