"""What each identity does with the retail example, and what it must see.

Expected values come from the example's own files, or are worked out by hand
here. Where revisions differ, the revision that was negotiated decides.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# In this order: the manager's many calls must not count as the warehouse's, and that the
# warehouse has used up its own must not matter to the one who comes last.
IDENTITIES = ["manager", "warehouse", "passer-by"]


def identities(run: Any) -> list[str]:
    """Who uses this client. Where only the revision is found otherwise, not everything is done again."""
    return IDENTITIES[1:] if run.era == "auto" else IDENTITIES


VISIBLE = {
    "warehouse": ["inventory-check", "stock-count-sheet", "stock-reorder", "stock-write-off", "supplier-ping"],
    "manager": [
        "audit-print",
        "courier-quote",
        "courier_cancelShipment",
        "courier_createShipment",
        "courier_getShipment",
        "customer-lookup",
        "goods-return",
        "inventory-check",
        "loyalty-points",
        "margin-simulation",
        "price-forecast",
        "query_state",
        "refund-issue",
        "sales-chart",
        "sales-report",
        "stock-count-sheet",
        "stock-reorder",
        "stock-write-off",
        "supplier-ping",
    ],
    "passer-by": ["inventory-check"],
}

WAREHOUSE_CALLS_PER_MINUTE = 5
PNG = "skill://inventory/stock-reorder/assets/reorder-flow.png"
HIDDEN_TOOL, NO_TOOL = "margin-simulation", "no-such-tool"
HIDDEN_SKILL, NO_SKILL = "skill://sales/sales-report", "skill://sales/no-such-skill"


@dataclass(frozen=True)
class Check:
    """One claim, whether it held, and what was seen if it did not."""

    name: str
    ok: bool
    detail: str


def _call(id: str, tool: str, arguments: dict, **more: Any) -> dict:
    return {"id": id, "do": "call", "tool": tool, "arguments": arguments, **more}


def steps(identity: str, run: Any) -> list[dict]:
    """What this identity does, in order."""
    lists = [{"id": "tools", "do": "tools"}, {"id": "resources", "do": "resources"}, {"id": "tools again", "do": "tools"}]
    check = {"sku": "TEA-001"}
    if identity == "passer-by":
        return [*lists, _call("success", "inventory-check", check), _call("hidden", "customer-lookup", {"key": 1001})]
    if identity == "warehouse":
        plan = [
            *lists,
            {"id": "hidden skill", "do": "read", "uri": HIDDEN_SKILL},
            {"id": "unknown skill", "do": "read", "uri": NO_SKILL},
            _call("denied", "stock-write-off", {"sku": "CUP-001", "quantity": 1, "reason": "damaged"}),
            _call("hidden", HIDDEN_TOOL, {"discount_percent": 10}),
            _call("unknown", NO_TOOL, {"discount_percent": 10}),
            # Only from here on calls are used up; refusals above cost nothing.
            _call("success", "inventory-check", check),
            _call("invalid", "stock-reorder", {"lines": "COF-001", "priority": "soon"}),
            _call("failing", "supplier-ping", {"supplier_id": "SUP-NOWHERE"}),
        ]
        if _counts_across_steps(run):
            used = 3
            plan += [
                _call(f"call {n}", "inventory-check", check) for n in range(used + 1, WAREHOUSE_CALLS_PER_MINUTE + 1)
            ]
            plan.append(_call("one too many", "inventory-check", check))
        return plan
    plan = [
        *lists,
        {"id": "skill", "do": "read", "uri": "skill://inventory/stock-reorder"},
        {"id": "skill file", "do": "read", "uri": "skill://inventory/stock-reorder/SKILL.md"},
        {"id": "chinese skill", "do": "read", "uri": "skill://service/loyalty-points"},
        {"id": "reference", "do": "read", "uri": "skill://inventory/stock-reorder/references/suppliers.md"},
        {"id": "picture", "do": "read", "uri": PNG},
        _call(
            "typed",
            "stock-reorder",
            {"lines": [{"sku": "COF-001"}, {"sku": "COF-003", "quantity": 16}], "priority": "express"},
        ),
        _call("null", "stock-reorder", {"lines": [{"sku": "FLT-001", "quantity": None}], "supplier_id": None}),
        _call("async", "sales-report", {"month": "2026-05", "group_by": "channel", "channels": ["web"]}),
        _call("union", "customer-lookup", {"key": 1003}),
        _call("chinese", "loyalty-points", {"customer_id": "C-1003"}),
        _call("printing", "audit-print", {"category": "tea", "copies": 2}),
        _call("progress", "price-forecast", {"sku": "TEA-001", "weeks": 4, "seconds": 0.4}, progress=True),
        _call("costly", "margin-simulation", {"discount_percent": 10, "runs": 100}),
    ]
    # More than the warehouse may.
    plan += [_call(f"own quota {n}", "inventory-check", check) for n in range(1, _manager_repeats(run) + 1)]
    return plan


def _counts_across_steps(run: Any) -> bool:
    # The Inspector starts a new server for each step over stdio.
    return not (run.client == "inspector" and run.transport == "stdio")


def _manager_repeats(run: Any) -> int:
    # A step of the Inspector is a program start; a few are enough to pass the limit of five.
    return 2 if run.client == "inspector" else WAREHOUSE_CALLS_PER_MINUTE + 1


class Judge:
    """Collects checks about one identity's outcomes."""

    def __init__(self, identity: str, run: Any, outcomes: list[dict]) -> None:
        self.identity = identity
        self.run = run
        self.checks: list[Check] = []
        self.outcomes = {outcome["id"]: outcome for outcome in outcomes if "id" in outcome}
        connected = next((outcome["connected"] for outcome in outcomes if "connected" in outcome), None)
        self.revision = connected or "none"

    def check(self, name: str, ok: bool, seen: Any = "") -> None:
        detail = seen if isinstance(seen, str) else json.dumps(seen, ensure_ascii=False)
        self.checks.append(Check(f"{self.identity}: {name}", bool(ok), f"seen: {detail}"))

    @property
    def modern(self) -> bool:
        return self.revision >= "2026-07-28"

    @property
    def results_carry_errors(self) -> bool:
        return self.revision >= "2025-11-25"

    def succeeded(self, id: str) -> bool:
        outcome = self.outcomes[id]
        return "error" not in outcome and not outcome["isError"]

    def value(self, id: str) -> Any:
        """What a successful call returned: structured, or as JSON text, which must agree."""
        outcome = self.outcomes[id]
        if not self.succeeded(id):
            return None
        try:
            text = json.loads(outcome["text"])
        except ValueError:
            return None
        if outcome["structured"] is not None and outcome["structured"] != text:
            return None
        return text

    def error(self, id: str, code: int, /, **data: Any) -> bool:
        """Whether the step was refused with this code and data. The Inspector shows neither."""
        error = self.outcomes[id].get("error")
        if error is None:
            return False
        if error["code"] is None:
            return self.run.client == "inspector"
        given = error["data"] or {}
        return error["code"] == code and all(given.get(key) == value for key, value in data.items())

    def refused(self, id: str, code: int, /, **data: Any) -> bool:
        """Tell calls that were refused by a result with this code and data, which a model can read."""
        outcome = self.outcomes[id]
        told = outcome.get("told") or {}
        right = told.get("code") == code and all(told.get(key) == value for key, value in data.items())
        return outcome.get("isError") is True and bool(outcome.get("text")) and right

    def unknown(self, id: str, founding: int) -> bool:
        if self.modern:
            return self.error(id, -32602, code=founding)
        return self.error(id, founding)

    def unknown_resource(self, id: str) -> bool:
        if self.run.client == "typescript-2" and not self.modern:
            # This SDK turns -32002 into an error of its own, with the newer code.
            return self.error(id, -32602) and "uri" in (self.outcomes[id]["error"]["data"] or {})
        return self.unknown(id, -32002)

    def failed(self, id: str, code: int, *words: str) -> bool:
        """Tell calls that ended as a tool error; wrong arguments are a JSON-RPC error in older revisions."""
        outcome = self.outcomes[id]
        if self.results_carry_errors or code != -32602:
            return outcome.get("isError") is True and all(word in outcome["text"] for word in words)
        return self.error(id, code) and all(word in json.dumps(outcome["error"]) for word in words)


def judge(identity: str, run: Any, steps: list[dict], outcomes: list[dict], trouble: str | None, home: Path) -> list:
    """All checks of one identity's part of a run."""
    judge = Judge(identity, run, outcomes)
    complaints = [outcome["complaint"] for outcome in outcomes if "complaint" in outcome]
    judge.check("nothing but messages was received", not complaints, complaints)
    missing = [step["id"] for step in steps if step["id"] not in judge.outcomes]
    judge.check("the client ran to its end", trouble is None and not missing, f"{trouble}; steps missing: {missing}")
    if missing:
        return judge.checks
    expected = "2025-11-25" if run.era == "legacy" else "2026-07-28"
    if run.transport == "sse":
        judge.check("a legacy revision was agreed on", judge.revision <= expected, judge.revision)
    else:
        judge.check(f"revision {expected} was agreed on", judge.revision == expected, judge.revision)
    _tools(judge)
    _resources(judge, home)
    stock = next(p for p in json.loads((home / "data/products.json").read_text("utf-8")) if p["sku"] == "TEA-001")
    if identity == "manager":
        _manager(judge, home)
    else:
        value = judge.value("success")
        ok = value is not None and value["items"][0]["on_hand"] == stock["on_hand"]
        judge.check("a call succeeds", ok, judge.outcomes["success"])
        if identity == "passer-by":
            judge.check("a hidden tool is unknown", judge.unknown("hidden", -32001), judge.outcomes["hidden"])
        else:
            _warehouse(judge)
    return judge.checks


def _tools(judge: Judge) -> None:
    outcome = judge.outcomes["tools"]
    tools = {tool["name"]: tool for tool in outcome.get("tools", [])}
    judge.check("it sees exactly its tools", sorted(tools) == VISIBLE[judge.identity], sorted(tools) or outcome)
    again = [tool["name"] for tool in judge.outcomes["tools again"].get("tools", [])]
    judge.check("in a fixed order", list(tools) == again, [list(tools), again])
    schemas = [tool.get("inputSchema", {}).get("type") for tool in tools.values()]
    judge.check("every tool takes an object", schemas and set(schemas) == {"object"}, schemas)
    check = tools.get("inventory-check", {})
    judge.check(
        "a tool that takes a session is open",
        check.get("inputSchema", {}).get("additionalProperties") is not False,
        check.get("inputSchema", {}),
    )
    description = check.get("description", "")
    judge.check("a tool is described by its docstring", "Shows what is in stock" in description, description)
    judge.check("and by its skill", "Hand the low items of *one supplier at a time*" in description, description)
    if "stock-reorder" in tools:
        reorder = tools["stock-reorder"]
        schema = reorder["inputSchema"]
        names = sorted(schema.get("properties", {}))
        judge.check("every parameter is published", names == ["lines", "notes", "priority", "supplier_id"], schema)
        judge.check("only what has no default is required", schema.get("required") == ["lines"], schema)
        judge.check("a typed result has a schema", reorder.get("outputSchema", {}).get("type") == "object", reorder)


def _resources(judge: Judge, home: Path) -> None:
    outcome = judge.outcomes["resources"]
    listed = {resource["uri"]: resource for resource in outcome.get("resources", [])}
    files = {
        "skill://" + "/".join(path.parent.relative_to(home / "skills").parts): path
        for path in sorted((home / "skills").rglob("SKILL.md"))
    }
    visible = {
        "warehouse": lambda uri: uri.startswith(("skill://inventory/", "files://notes/")),
        "manager": lambda uri: True,
        "passer-by": lambda uri: uri.startswith("skill://service/holiday-opening"),
    }[judge.identity]
    expected = sorted(uri for uri in files if visible(uri))
    skills = sorted(uri for uri in listed if uri in files)
    judge.check("it sees exactly its skills", skills == expected, sorted(listed) or outcome)
    others = [uri for uri in listed if not visible(uri)]
    judge.check("and nothing beside them", not others, others)
    wrong = [
        listed[uri]
        for uri in skills
        if listed[uri].get("mimeType") != "text/markdown"
        or listed[uri].get("size") != files[uri].stat().st_size
        or not listed[uri].get("description")
    ]
    judge.check("with type, size and description", skills and not wrong, wrong)


def _warehouse(judge: Judge) -> None:
    see = judge.outcomes
    judge.check("a hidden skill is unknown", judge.unknown_resource("hidden skill"), see["hidden skill"])
    judge.check("an unknown skill is unknown", judge.unknown_resource("unknown skill"), see["unknown skill"])
    hidden, unknown = (json.dumps(see[id].get("error")) for id in ("hidden skill", "unknown skill"))
    same = hidden.replace(HIDDEN_SKILL, "URI") == unknown.replace(NO_SKILL, "URI")
    judge.check("and nothing tells them apart", same, [hidden, unknown])
    judge.check("a permission is refused", judge.refused("denied", -32003, reason="permission"), see["denied"])
    judge.check("a hidden tool is unknown", judge.unknown("hidden", -32001), see["hidden"])
    judge.check("an unknown tool is unknown", judge.unknown("unknown", -32001), see["unknown"])
    hidden, unknown = (json.dumps(see[id].get("error")) for id in ("hidden", "unknown"))
    same = hidden.replace(HIDDEN_TOOL, "TOOL") == unknown.replace(NO_TOOL, "TOOL")
    judge.check("and nothing tells them apart", same, [hidden, unknown])
    # The Inspector puts an error result into its own words.
    words = [] if judge.run.client == "inspector" else ["/lines", "/priority"]
    judge.check("invalid arguments are refused, all at once", judge.failed("invalid", -32602, *words), see["invalid"])
    judge.check("a failing handler says why", judge.failed("failing", -32005, "SUP-NOWHERE"), see["failing"])
    if not _counts_across_steps(judge.run):
        return
    more = [id for id in see if id.startswith("call ")]
    judge.check("its calls are admitted up to the limit", more and all(map(judge.succeeded, more)), [see[i] for i in more])
    refused = see["one too many"]
    ok = judge.refused("one too many", -32003, reason="rate_minute", retryable=True)
    judge.check("and refused beyond", ok, refused)
    after = (refused.get("told") or {}).get("retry_after")
    if judge.run.client != "inspector":
        # The window is counted in seconds: the last call may come back one second late.
        judge.check("with the time to wait", isinstance(after, (int, float)) and 0 < after <= 61, refused)


def _manager(judge: Judge, home: Path) -> None:
    see = judge.outcomes
    skills = home / "skills"
    for id, path, kind in [
        ("skill", "inventory/stock-reorder/SKILL.md", "text/markdown"),
        ("skill file", "inventory/stock-reorder/SKILL.md", "text/markdown"),
        ("chinese skill", "service/loyalty-points/SKILL.md", "text/markdown"),
        ("reference", "inventory/stock-reorder/references/suppliers.md", "text/markdown"),
        ("picture", "inventory/stock-reorder/assets/reorder-flow.png", "image/png"),
    ]:
        contents = see[id].get("contents") or [{}]
        ok = len(contents) == 1 and base64.b64decode(contents[0].get("base64", "")) == (skills / path).read_bytes()
        judge.check(f"{id} is read byte for byte", ok, see[id])
        judge.check(f"{id} is {kind}", contents[0].get("mimeType") == kind, see[id])
    tools = {tool["name"]: tool for tool in see["tools"].get("tools", [])}
    chinese = tools.get("loyalty-points", {}).get("description", "")
    judge.check("a Chinese docstring arrives whole", "查询会员积分，并计算可兑换的代金券数量。" in chinese, chinese)

    order = judge.value("typed") or {}
    # 40 x 13.80 (the usual quantity) + 16 x 8.60, and ten per cent for express.
    expected = {
        "supplier_id": "SUP-CAPE",
        "priority": "express",
        "lines": [{"sku": "COF-001", "quantity": 40}, {"sku": "COF-003", "quantity": 16}],
        "total_cents": 75856,
        "expected_in_days": 2,
        "notes": {},
    }
    ok = isinstance(order.get("number"), int) and {**order, "number": 0} == {**expected, "number": 0}
    judge.check("typed arguments give a typed result", ok, see["typed"])
    structured = see["typed"].get("structured")
    if judge.revision >= "2025-06-18":
        judge.check("which is structured", structured == order and bool(order), see["typed"])
    judge.check("null is as good as left out", (judge.value("null") or {}).get("total_cents") == 18000, see["null"])
    report = judge.value("async") or {}
    ok = (report.get("orders"), report.get("turnover_cents")) == _web_turnover(home, "2026-05")
    judge.check("an async handler answers", ok, see["async"])
    judge.check("a union admits a number", (judge.value("union") or {}).get("name") == "陈丽", see["union"])
    judge.check("results are not only ASCII", (judge.value("chinese") or {}).get("vouchers") == 11, see["chinese"])
    judge.check("a handler may print", judge.value("printing") == {"lines": 3, "copies": 2}, see["printing"])
    forecast = judge.value("progress") or {}
    judge.check("a slow handler answers", len(forecast.get("forecast", [])) == 4, see["progress"])
    if judge.run.client != "inspector":
        progress = see["progress"].get("progress") or []
        done = [step[0] for step in progress]
        # The last report may be overtaken by the answer; the first ones may not be lost.
        ok = done[:3] == [1, 2, 3] and all(step[1] == 4 and step[2] for step in progress)
        judge.check("and reports its progress", ok, progress)
    judge.check("a costly handler answers", (judge.value("costly") or {}).get("runs") == 100, see["costly"])
    own = [id for id in see if id.startswith("own quota ")]
    failed = [see[id] for id in own if not judge.succeeded(id)]
    judge.check("its quota is its own", own and not failed, failed)


def _web_turnover(home: Path, month: str) -> tuple[int, int]:
    orders = [
        order
        for order in json.loads((home / "data/orders.json").read_text("utf-8"))
        if order["channel"] == "web" and order["placed_on"].startswith(month)
    ]
    cents = sum(line["quantity"] * line["unit_price_cents"] for order in orders for line in order["lines"])
    return len(orders), cents
