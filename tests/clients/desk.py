"""The service desk of the retail example: a question, a log message, progress, a picture, a prompt, completion and a
resource of a Python application, used by the official clients.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from expectations import Check
from parts import Part, call, stage
from processes import Server, end

# With the eras in which they go.
CLIENTS = {client: ["legacy", "modern"] for client in ("python-2", "typescript-2", "inspector")}

QUESTION = "Why does O-5007 come back?"
# Modern clients say with each request what they want to hear; legacy ones are told everything by default.
HEARS = {"io.modelcontextprotocol/logLevel": "info"}


def carry_out(client: str, transport: str, era: str, binary: Path, config: Path, cache: Path) -> list[Check]:
    """All checks of one client."""
    with stage(client, transport, era, "desk", config, cache) as here:
        command = [binary.absolute(), "start", "--config", here.home / config.name, "--transport", transport]
        more = {"confirms": {QUESTION: {"reason": "late", "keep_as_voucher": True}}}
        if transport == "stdio":
            _judge(here.play("desk", "manager", _steps(era), command=command, **more))
            _judge_other(here.play("other", "warehouse", _others_steps(), command=command, **more))
        else:
            server = Server([*command, "--port", "{port}"], here.env, here.results / "server.log")
            try:
                _judge(here.play("desk", "manager", _steps(era), port=server.port, **more))
                _judge_other(here.play("other", "warehouse", _others_steps(), port=server.port, **more))
            finally:
                status = end(server.process)
                here.check("the server stops when asked", status == 0, f"status {status}")
    return here.checks


def _steps(era: str) -> list[dict]:
    hears = {"meta": HEARS} if era == "modern" else {}
    return [
        call("return", "goods-return", {"order_id": "O-5007"}, **{**hears, "progress": True}),
        call("declined", "goods-return", {"order_id": "O-5006"}),
        call("unknown", "goods-return", {"order_id": "O-1"}),
        call("chart", "sales-chart", {}),
        {"id": "prompts", "do": "prompts"},
        {"id": "prompt", "do": "prompt", "prompt": "complaint-answer", "arguments": {"order_id": "O-5007"}},
        {"id": "incomplete", "do": "prompt", "prompt": "complaint-answer", "arguments": {}},
        {"id": "complete", "do": "complete", "prompt": "complaint-answer", "argument": "tone", "value": "fr"},
        {"id": "resource", "do": "read", "uri": "desk://returns/reasons"},
    ]


def _others_steps() -> list[dict]:
    return [
        {"id": "prompts", "do": "prompts"},
        {"id": "prompt", "do": "prompt", "prompt": "complaint-answer", "arguments": {"order_id": "O-5007"}},
        {"id": "complete", "do": "complete", "prompt": "complaint-answer", "argument": "tone", "value": "fr"},
        {"id": "resource", "do": "read", "uri": "desk://returns/reasons"},
    ]


def _judge(part: Part) -> None:
    if not part.is_complete:
        return
    said = part.outcomes
    returned = said["return"]
    right = not returned.get("isError", True) and returned["text"].endswith("for a voucher: late")
    part.check("the handler goes on with the answer", right, returned)
    part.check("the user is asked once", returned.get("asked") == [QUESTION], returned)
    # The Inspector's command line shows neither progress nor codes of errors.
    is_terse = part.where.client == "inspector"
    # The TypeScript SDK counts its own rounds besides, without a total.
    done = [report[0] for report in returned.get("progress") or [] if report[1] is not None]
    part.check("its progress is told", is_terse or done == [1, 2], returned)
    part.check("what it logs is heard", "comes back: late" in json.dumps(returned.get("logs")), returned)
    declined = said["declined"]
    part.check("the user may decline", declined.get("text") == "O-5006 stays with the customer", declined)
    part.check("a failure asks nothing", said["unknown"].get("isError") and not said["unknown"]["asked"], said["unknown"])
    pictures = said["chart"].get("pictures") or [{"mimeType": "", "base64": ""}]
    is_png = base64.b64decode(pictures[0]["base64"]).startswith(b"\x89PNG")
    part.check("a picture comes", pictures[0]["mimeType"] == "image/png" and is_png, said["chart"])
    names = [it["name"] for it in said["prompts"].get("prompts", [])]
    part.check("the prompt is listed", names == ["complaint-answer"], names)
    text = json.dumps(said["prompt"].get("messages"))
    part.check("the prompt is filled in", "order O-5007" in text and "friendly tone" in text, said["prompt"])
    refused = said["incomplete"].get("error", {"code": 0})
    part.check("an argument is required", refused["code"] == (None if is_terse else -32602), refused)
    part.check("its argument is completed", said["complete"].get("values") == ["friendly"], said["complete"])
    contents = said["resource"].get("contents") or [{"base64": ""}]
    part.check("the resource is read", b"wrong item" in base64.b64decode(contents[0]["base64"]), said["resource"])


def _judge_other(part: Part) -> None:
    if not part.is_complete:
        return
    said = part.outcomes
    part.check("it sees no prompt", said["prompts"].get("prompts") == [], said["prompts"])
    for id in ("prompt", "complete", "resource"):
        part.check(f"it gets nothing ({id})", "error" in said[id], said[id])
