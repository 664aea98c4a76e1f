"""Calls that somebody has to agree to, keys, and rules that change, as the official clients see them.

The client's user agrees or not; or an operator does, on the command line beside the running
server. Afterwards the ledger has to say what the clients saw, and the bank's own book, in which
each payment is written down as it is made, that nothing else was done.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from expectations import Check
from parts import REVISIONS, Part, Stage, call, stage
from processes import HERE, Server, end

# With the eras in which they go.
CLIENTS = {
    "python-2": ["legacy", "modern"],
    "python-1": ["legacy"],
    "typescript-2": ["modern"],
    "typescript-1": ["legacy"],
}
# Offered instead of the latest by those that can be told to.
OLDER = {"python-2": ["2025-06-18", "2025-03-26"], "python-1": ["2025-06-18", "2025-03-26", "2024-11-05"]}
# In these, servers cannot ask.
BEFORE_QUESTIONS = ["2025-03-26", "2024-11-05"]

CONFIG = HERE / "bank" / "mcp-server.yaml"
KEY = "io.owlclaw/idempotencyKey"
REFUSED = -32003
CLERK = HERE / "clerk.py"


def carry_out(client: str, transport: str, era: str, binary: Path, cache: Path) -> list[Check]:
    """All checks of one client."""
    with stage(client, transport, era, "governance", CONFIG, cache) as here:
        bank = Bank(here, binary.absolute())
        command = [bank.binary, "start", "--config", bank.config, "--transport", transport]
        if transport == "stdio":
            bank.carry_out({"command": command})
        else:
            server = Server([*command, "--port", "{port}"], here.env, here.results / "server.log")
            try:
                bank.carry_out({"port": server.port})
            finally:
                status = end(server.process)
                here.check("the server stops when asked", status == 0, f"status {status}")
        bank.judge_ledger()
    return here.checks


class Bank:
    """The bank of one run, and what its clients were told."""

    def __init__(self, here: Stage, binary: Path) -> None:
        self.here, self.binary = here, binary
        self.config = here.home / CONFIG.name
        # What must be in the bank's book, and what became of calls, by client.
        self.expected: list[str] = []
        self.seen: Counter[tuple[str, str]] = Counter()

    def carry_out(self, server: dict) -> None:
        self._user(server)
        self._operator(server)
        self._rules(server)
        # Once each: the transport makes no difference to what is asked.
        if (self.here.transport, self.here.era) == ("http", "legacy"):
            for revision in OLDER.get(self.here.client, []):
                self._older(server, revision)
        done = self.here.home / "done.txt"
        lines = done.read_text(encoding="utf-8").splitlines() if done.exists() else []
        self.here.check("the bank did what was agreed to, once each", lines == self.expected, [lines, self.expected])

    def play(self, name: str, client: str, steps: list[dict], server: dict, **more: Any) -> Part:
        part = self.here.play(name, client, steps, **server, **more)
        for step in steps:
            outcome = part.outcomes.get(step["id"])
            if step["do"] == "call" and outcome is not None:
                # The one that was sent again is on record as what it is, too.
                self.seen[client, "idempotency_done" if step["id"] == "key again" else _fate(outcome)] += 1
        return part

    # The client's user.

    def _user(self, server: dict) -> None:
        yes = {
            _question("pay", {"to": "bob", "amount": 1}): {"confirm": True},
            _question("wire", {"to": "bob", "amount": 2}): {"confirm": True},
            _question("wire", {"to": "bob", "amount": 4}): {"confirm": False},
            _question("pay", {"to": "bob", "amount": 5}): {"confirm": True},
        }
        steps = [
            call("accepted", "pay", {"to": "bob", "amount": 1}),
            call("financial", "wire", {"to": "bob", "amount": 2}),
            call("declined", "wire", {"to": "bob", "amount": 3}),
            call("declined again", "wire", {"to": "bob", "amount": 3}),
            call("form says no", "wire", {"to": "bob", "amount": 4}),
            call("wrong", "pay", {"to": "bob"}),
            call("key", "pay", {"to": "bob", "amount": 5}, meta={KEY: "k-1"}),
            call("key again", "pay", {"to": "bob", "amount": 5}, meta={KEY: "k-1"}),
            call("key of another", "note", {"text": "five"}, meta={KEY: "k-1"}),
            call("free", "note", {"text": "asked"}),
        ]
        part = self.play("user", "ana", steps, server, confirms=yes)
        if not part.is_complete:
            return
        said = part.outcomes
        self.expected += ["pay bob 1", "wire bob 2", "pay bob 5", "note asked"]
        asked = {
            "accepted": [_question("pay", {"to": "bob", "amount": 1})],
            "financial": [_question("wire", {"to": "bob", "amount": 2})],
            "declined": [_question("wire", {"to": "bob", "amount": 3})],
            "form says no": [_question("wire", {"to": "bob", "amount": 4})],
            "key": [_question("pay", {"to": "bob", "amount": 5})],
        }
        for step in steps:
            id = step["id"]
            part.check(f"{id}: the user is asked what they should be", said[id]["asked"] == asked.get(id, []), said[id])
        for id, amount in (("accepted", 1), ("financial", 2), ("key", 5)):
            part.check(f"{id}: it is done", (said[id].get("structured") or {}).get("paid") == amount, said[id])
        for id in ("declined", "declined again"):
            error = _refusal(said[id], "confirmation")
            part.check(f"{id}: it is refused", error["approval"].get("state") == "denied", said[id])
        # A form that is sent without the tick decides nothing.
        error = _refusal(said["form says no"], "confirmation")
        is_open = "without allowing it" in said["form says no"]["text"] and not error["approval"]
        part.check("form says no: it is refused, and nothing is decided", is_open, said["form says no"])
        part.check("wrong: it is refused for what it is", _is_invalid(said["wrong"]), said["wrong"])
        part.check("key again: it is answered as before", _came_to(said["key again"]) == _came_to(said["key"]), said)
        error = _refusal(said["key of another"], "idempotency")
        part.check("key of another: it is refused", error.get("state") == "another_call", said["key of another"])

    # An operator.

    def _operator(self, server: dict) -> None:
        ten = {"to": "eve", "amount": 10}
        clerk = [sys.executable, str(CLERK), str(self.binary), str(self.config)]
        steps = [
            call("first", "wire", ten),
            call("first again", "wire", dict(reversed(ten.items()))),
            {"id": "clerk", "do": "beside", "command": [*clerk, "approve", "bob"]},
            call("more", "wire", {**ten, "amount": 11}),
            call("approved", "wire", ten),
            call("once more", "wire", ten),
            # As another client has it, whose keys are its own.
            call("key", "note", {"text": "mine"}, meta={KEY: "k-1"}),
            call("key again", "note", {"text": "mine"}, meta={KEY: "k-1"}),
            call("key of another", "note", {"text": "other"}, meta={KEY: "k-1"}),
        ]
        part = self.play("operator", "bob", steps, server)
        if not part.is_complete:
            return
        said = part.outcomes
        self.expected += ["wire eve 10", "note mine"]
        names = {}
        for id in ("first", "first again", "more", "once more"):
            approval = _refusal(said[id], "confirmation")["approval"]
            names[id] = approval.get("id", "")
            part.check(f"{id}: it waits for an approval", approval.get("state") == "pending", said[id])
        words = said["first"].get("text", "")
        clear = all(it in words for it in (f"owlclaw-mcp approvals approve {names['first']} --by NAME", "the same call again"))
        part.check("the client is told what to do", names["first"].startswith("apr_") and clear, words)
        part.check("the same call waits for the same", names["first"] == names["first again"], names)
        part.check("others wait for their own", len({*names.values()}) == 3, names)
        clerks = json.loads(said["clerk"]["output"] or "{}")
        listed, decided = clerks.get("listed", {}), clerks.get("decided", {})
        right = listed.get("id") == names["first"] and listed.get("arguments") == ten and listed.get("state") == "pending"
        part.check("the operator sees it", right and listed["capability"] == "tool/wire", said["clerk"])
        right = decided.get("state") == "approved" and (decided.get("decided_by"), decided.get("decided_reason")) == ("alice", "asked him")
        part.check("the operator approves it", right, said["clerk"])
        part.check("approved: it is done", (said["approved"].get("structured") or {}).get("paid") == 10, said["approved"])
        part.check("key: it is done", (said["key"].get("structured") or {}).get("noted") == "mine", said["key"])
        part.check("key again: it is answered as before", _came_to(said["key again"]) == _came_to(said["key"]), said)
        error = _refusal(said["key of another"], "idempotency")
        part.check("key of another: it is refused", error.get("state") == "another_call", said["key of another"])
        used = self._told("approvals", "show", names["first"])
        part.check("its approval is used", used.get("state") == "used", used)

    # Rules that change.

    def _rules(self, server: dict) -> None:
        good = self.config.read_text(encoding="utf-8")
        files = {
            "denied": good.replace("deny: []", 'deny: ["note"]'),
            "broken": good.replace("deny: []", 'deny: "note'),
            "good": good,
        }
        for name, text in files.items():
            self._file(name).write_text(text, encoding="utf-8")
        clerk = [sys.executable, str(CLERK), str(self.binary), str(self.config)]

        def swap(name: str, kind: str) -> dict:
            return {"id": name, "do": "beside", "command": [*clerk, "rules", str(self._file(name)), kind]}

        steps = [
            call("before", "note", {"text": "before"}),
            swap("denied", "policy_changed"),
            call("while denied", "note", {"text": "while denied"}),
            swap("broken", "policy_rejected"),
            call("while broken", "note", {"text": "while broken"}),
            swap("good", "policy_changed"),
            call("after", "note", {"text": "after"}),
        ]
        part = self.play("rules", "rita", steps, server)
        if not part.is_complete:
            return
        said = part.outcomes
        self.expected += ["note before", "note after"]
        for id in ("denied", "broken", "good"):
            part.check(f"the file becomes the {id} one", said[id]["status"] == 0, said[id])
        for id in ("before", "after"):
            part.check(f"{id}: it is done", (said[id].get("structured") or {}).get("noted") == id, said[id])
        for id in ("while denied", "while broken"):
            part.check(f"{id}: it is refused", bool(_refusal(said[id], "permission")), said[id])

    # Revisions that are not the client's latest.

    def _older(self, server: dict, revision: str) -> None:
        client = f"old-{revision}"
        one, two = {"to": revision, "amount": 1}, {"to": revision, "amount": 2}
        steps = [call("accepted", "pay", one), call("declined", "pay", two)]
        confirms = {_question("pay", one): {"confirm": True}}
        part = self.play(revision, client, steps, server, confirms=confirms, revision=revision)
        if not part.is_complete:
            return
        said = part.outcomes
        states = {id: _refusal(said[id], "confirmation")["approval"].get("state") for id in said}
        asked = [it["asked"] for it in said.values()]
        if revision in BEFORE_QUESTIONS:
            right = asked == [[], []] and states == {"accepted": "pending", "declined": "pending"}
        else:
            self.expected.append(f"pay {revision} 1")
            right = asked == [[_question("pay", one)], [_question("pay", two)]] and states["declined"] == "denied"
            right = right and (said["accepted"].get("structured") or {}).get("to") == revision
        part.check("the user is asked where they can be", right, said)

    # Afterwards.

    def judge_ledger(self) -> None:
        """Whether what is on record is what the clients saw."""
        check = self.here.check
        verified = self._run("ledger", "verify")
        check("the ledger is sound", verified.returncode == 0, verified.stdout + verified.stderr)
        calls = self._told("ledger", "query", "--limit", "10000")
        recorded = Counter((it["client"], _recorded(it)) for it in calls)
        both = [sorted(recorded.items()), sorted(self.seen.items())]
        check("the ledger says what the clients saw", recorded == self.seen, both)
        rows = self._told("governance", "stats")
        summed: Counter[tuple[str, str]] = Counter()
        for row in rows:
            summed[row["client"], "done"] += row["succeeded"]
            summed[row["client"], "invalid"] += row["invalid"]
            for reason, count in row["refused_by_reason"].items():
                summed[row["client"], reason] += count
        # Without what is zero.
        check("the sums are those of what the clients saw", +summed == self.seen, [rows, sorted(self.seen.items())])
        explained = self._told("governance", "explain", "--as", "rita", "--tool", "wire")
        right = explained["verdict"] == "to_be_confirmed" and explained["confirmation"] == "user"
        check("a call that is confirmed is explained", right, explained)
        explained = self._told("governance", "explain", "--as", "rita", "--tool", "note", config=self._file("denied"))
        right = explained["verdict"] == "refused" and explained["reason"] == "permission"
        check("a call that is refused is explained", right, explained)

    def _file(self, name: str) -> Path:
        return self.config.with_name(f"{name}.yaml")

    def _run(self, *words: str, config: Path | None = None) -> subprocess.CompletedProcess:
        command = [str(self.binary), *words, "--config", str(config or self.config)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.here.env)

    def _told(self, *words: str, config: Path | None = None) -> Any:
        done = self._run(*words, "--format", "json", config=config)
        if done.returncode:
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)


def _question(tool: str, arguments: dict) -> str:
    """What the user is asked."""
    more = "\nExpected cost: 0.5\nRisk: financial" if tool == "wire" else ""
    return f"Allow this call of the tool `{tool}`?\nArguments: {json.dumps(arguments, separators=(',', ':'))}{more}"


def _refusal(outcome: dict, reason: str) -> dict:
    """The data of a refusal for this reason; of anything else, nothing."""
    data = outcome.get("told") or {}
    right = outcome.get("isError") is True and data.get("code") == REFUSED and data.get("reason") == reason
    return {"approval": {}, **data} if right else {"approval": {}}


def _is_invalid(outcome: dict) -> bool:
    return (outcome.get("told") or outcome.get("error") or {}).get("code") == -32602


def _came_to(outcome: dict) -> tuple:
    return outcome.get("isError"), outcome.get("text"), outcome.get("structured")


def _fate(outcome: dict) -> str:
    """What became of a call, as the client was told."""
    data = outcome.get("told") or {}
    if "reason" in data:
        return f"{data['reason']}_{data['state']}" if "state" in data else data["reason"]
    return "invalid" if _is_invalid(outcome) else "done"


def _recorded(entry: dict) -> str:
    """The same, as the ledger has it."""
    return entry["reason"] or {"succeeded": "done"}.get(entry["outcome"], entry["outcome"])
