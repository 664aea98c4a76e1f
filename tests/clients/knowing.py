"""Resources of the retail example: found, completed, read, followed, searched and written to by the official clients.

The shop's notes are a directory that clients may write to. Another program writes to it as well, and those who listen
are told of both. What is destroyed is confirmed by the client's user, and put back by an operator's means.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

from expectations import Check
from parts import Part, Stage, call, stage
from processes import Server, end

# With the eras in which they go.
CLIENTS = {
    "python-2": ["legacy", "modern"],
    "python-1": ["legacy"],
    "typescript-2": ["legacy", "modern"],
    "typescript-1": ["legacy"],
    "inspector": ["legacy", "modern"],
}

NOTES = 'notes: {path: ./notes, include: ["*.md"]}'
WRITABLE = 'notes: {path: ./notes, include: ["*.md"], writable: true}\n    search: {enabled: true}'
TEMPLATE = "files://notes/{+path}"
SUPPLIERS = "files://notes/suppliers.md"
FOUND, MOVED = "files://notes/lost-and-found.md", "files://notes/umbrellas.md"
DELETE = f'Allow this call of the tool `resource-delete`?\nArguments: {{"uri":"{MOVED}"}}\nRisk: mutating'

# What another program does, with the path of a file and a text.
APPEND = "import sys; open(sys.argv[1], 'a', encoding='utf-8').write(sys.argv[2])"


def carry_out(client: str, transport: str, era: str, binary: Path, config: Path, cache: Path) -> list[Check]:
    """All checks of one client."""
    with stage(client, transport, era, "resources", config, cache) as here:
        settings = here.home / config.name
        text = settings.read_text(encoding="utf-8")
        assert NOTES in text, "the example's notes are configured otherwise"
        settings.write_text(text.replace(NOTES, WRITABLE), encoding="utf-8")
        command = [binary.absolute(), "start", "--config", settings, "--transport", transport]
        if transport == "stdio":
            _use(here, {"command": command})
        else:
            server = Server([*command, "--port", "{port}"], here.env, here.results / "server.log")
            try:
                _use(here, {"port": server.port})
            finally:
                status = end(server.process)
                here.check("the server stops when asked", status == 0, f"status {status}")
    return here.checks


def _tag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _use(here: Stage, server: dict) -> None:
    notes = here.home / "notes"
    before = (notes / "suppliers.md").read_text(encoding="utf-8")
    added = "* The umbrella stand is sold out until May.\n"
    after = before + added
    write = {"uri": SUPPLIERS, "text": "# Suppliers\n\nAsk the manager.\n"}
    steps = [
        {"id": "templates", "do": "templates"},
        {"id": "completed", "do": "complete", "template": TEMPLATE, "argument": "path", "value": "st"},
        {"id": "read", "do": "read", "uri": SUPPLIERS},
        {"id": "subscribed", "do": "subscribe", "uri": SUPPLIERS},
        {"id": "changed", "do": "beside", "command": [sys.executable, "-c", APPEND, str(notes / "suppliers.md"), added]},
        {"id": "told", "do": "told"},
        {"id": "read again", "do": "read", "uri": SUPPLIERS},
        call("found", "search_resources", {"query": "umbrella"}, until={"total": 1, "isCurrent": True}),
        call("not written", "resource-write", {**write, "ifMatch": _tag(before)}),
        call("would be written", "resource-write", {**write, "ifMatch": _tag(after), "dryRun": True}),
        {"id": "read unchanged", "do": "read", "uri": SUPPLIERS},
        call("written", "resource-write", {**write, "ifMatch": _tag(after)}),
        {"id": "told of the write", "do": "told"},
        {"id": "read what was written", "do": "read", "uri": SUPPLIERS},
        call("created", "resource-create", {"uri": FOUND, "text": "# Lost and found\n\nA green umbrella.\n"}),
        call("created twice", "resource-create", {"uri": FOUND, "text": "Another."}),
        call("moved", "resource-move", {"uri": FOUND, "to": MOVED}),
        # The index follows within a second or so.
        call("found where it is", "search_resources", {"query": "green umbrella", "uri": MOVED}, until={"total": 1}),
        call("escaped", "resource-create", {"uri": "files://notes/../app.py", "text": "import os"}),
        call("deleted", "resource-delete", {"uri": MOVED}),
        {"id": "read what is gone", "do": "read", "uri": MOVED},
        call("not found any more", "search_resources", {"query": "green umbrella"}, until={"total": 0}),
    ]
    part = here.play("resources", "manager", steps, **server, confirms={DELETE: {"confirm": True}})
    if part.is_complete:
        _judge(part, before, after, write["text"], notes)
    # The terminal in the stockroom reads the notes, and has none of the tools that write to them.
    steps = [
        {"id": "tools", "do": "tools"},
        {"id": "read", "do": "read", "uri": SUPPLIERS},
        call("refused", "resource-write", {**write, "text": "Nothing.\n"}),
    ]
    part = here.play("resources of others", "warehouse", steps, **server)
    if part.is_complete:
        tools = [it["name"] for it in part.outcomes["tools"].get("tools", [])]
        part.check("tools that write are not shown", not any(it.startswith("resource-") for it in tools), tools)
        part.check("the note is read", _text(part, "read") == write["text"], part.outcomes["read"])
        refused = part.outcomes["refused"]
        is_refused = "error" in refused or refused.get("isError") is True
        part.check("a write is refused", is_refused, refused)
        text = (notes / "suppliers.md").read_text(encoding="utf-8")
        part.check("and nothing is written", text == write["text"], text)


def _text(part: Part, id: str) -> str:
    contents = part.outcomes[id].get("contents") or [{"base64": ""}]
    return base64.b64decode(contents[0]["base64"]).decode()


def _judge(part: Part, before: str, after: str, written: str, notes: Path) -> None:
    said = part.outcomes

    def answers(id: str) -> dict:
        structured = said[id].get("structured") or {}
        part.check(f"{id} answers", said[id].get("isError") is False and bool(structured), said[id])
        return structured

    templates = {it["uriTemplate"] for it in said["templates"].get("templates", [])}
    part.check("the directory has a template", TEMPLATE in templates, sorted(templates))
    part.check("paths are completed", said["completed"].get("values") == ["stocktaking.md"], said["completed"])
    for id, text in [
        ("read", before),
        ("read again", after),
        ("read unchanged", after),
        ("read what was written", written),
    ]:
        part.check(f"{id} has what is there", _text(part, id) == text, said[id])
    part.check("a subscription is accepted", "error" not in said["subscribed"], said["subscribed"])
    for id in ("told", "told of the write"):
        # What is written to in two steps may be told of after each.
        part.check(f"subscribers are {id}", set(said[id].get("told", [])) == {SUPPLIERS}, said[id])
    for id, uri in [("found", SUPPLIERS), ("found where it is", MOVED)]:
        results = answers(id).get("results", [])
        part.check(f"{id} by its text", [it["uri"] for it in results] == [uri], results)
    part.check("a note that has changed is not overwritten", said["not written"].get("isError") is True, said["not written"])
    for id in ("would be written", "written", "created", "moved", "deleted"):
        answers(id)
    for id in ("created twice", "escaped"):
        part.check(f"{id} is refused", said[id].get("isError") is True or "error" in said[id], said[id])
    part.check("no file is written beside the notes", "import os" != (notes.parent / "app.py").read_text()[:9], "app.py")
    part.check("the user was asked, once", said["deleted"].get("asked") == [DELETE], said["deleted"])
    part.check("what is deleted is gone", "error" in said["read what is gone"], said["read what is gone"])
    answers("not found any more")
