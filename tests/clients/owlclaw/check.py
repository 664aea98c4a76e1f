#!/usr/bin/env python3
"""Loads OwlClaw's own examples with a server binary, and calls their handlers.

    tests/clients/owlclaw/check.py BINARY CHECKOUT [PYTHON]...

CHECKOUT is one of OwlClaw's repository. An interpreter that has the package owlclaw runs the examples with it, and one
that has not with the stand-in; without PYTHON it is the one that runs this. Examples without an application are none of
these: docs/handlers.md names those that there are.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Each example with its handlers, and calls with a part of what is answered.
EXAMPLES = {
    "basic_usage.py": (["entry-monitor", "morning-decision"], [("entry-monitor", {}, "{"), ("morning-decision", {}, "{")]),
    "quick_start/app.py": (["inventory-check"], [("inventory-check", {}, "action")]),
    "complete_workflow/app.py": (
        ["anomaly-alert", "daily-report", "inventory-check", "reorder-decision"],
        [("inventory-check", {}, "{"), ("daily-report", {}, "{")],
    ),
    "mionyee-trading/app.py": (["entry-monitor", "knowledge-feedback", "morning-decision"], [("knowledge-feedback", {}, "{")]),
    "langchain/basic_runnable_registration.py": (["entry-monitor"], [("entry-monitor", {"text": "tea"}, "langchain")]),
    "langchain/decorator_registration.py": (
        ["morning-decision"],
        [("morning-decision", {"question": "why", "context": "tea"}, "Q: why | context: tea")],
    ),
    "langchain/fallback_and_retry.py": (["entry-monitor", "morning-decision"], [("entry-monitor", {"text": "tea"}, "summary")]),
    "langchain/tracing_with_langfuse.py": (["entry-monitor"], [("entry-monitor", {"text": "tea"}, "trace")]),
    "langchain/transformers.py": (["entry-monitor"], [("entry-monitor", {"content": "tea"}, "generated_at")]),
    "cron/daily_sales_report.py": ([], []),
    "cron/governance_constraints.py": ([], []),
    "cron/hourly_inventory.py": ([], []),
    "cron/nightly_data_cleanup.py": ([], []),
    "cron/weekday_morning_decision.py": ([], []),
}

# What the examples limit for OwlClaw's own agent has to be limited here as well.
CONFIGURATION = """
mcp_server:
  app: {app}
  python: {python}
  ledger: {{path: ledger.db}}
  workers: {{cwd: {cwd}, watch: false}}
  logging: {{level: error}}
  governance:
    default: {{tools: {{allow: ["*"]}}}}
    clients: {{operator: {{quota: {{monthly_budget: 50}}}}}}
    breaker: {{failures: 5}}
    trading_hours: ["Mon-Sun 00:00-24:00 UTC"]
    default_quota: {{monthly_budget: 100, max_calls_per_minute: 60, max_calls_per_day: 1000}}
"""


def run(binary, home, *words):
    return subprocess.run(
        [binary, *words, "--config", str(home / "mcp-server.yaml")], cwd=home, capture_output=True, text=True, timeout=120
    )


def tried(binary, checkout, python, example, tools, calls):
    wrong = []
    with tempfile.TemporaryDirectory(prefix="owlclaw-examples-") as name:
        home = Path(name)
        # Elsewhere, since the package lies beside the examples. Those of LangChain are run beside the directory.
        shutil.copytree(checkout / "examples", home / "examples")
        app = home / "examples" / example
        text = CONFIGURATION.format(app=app, python=python, cwd=home if "langchain" in example else app.parent)
        (home / "mcp-server.yaml").write_text(text)
        listed = run(binary, home, "tools", "list", "--format", "json")
        names = sorted(tool["name"] for tool in json.loads(listed.stdout or "[]"))
        if listed.returncode != 0 or names != tools:
            return [f"tools are {names}: {listed.stderr[-600:]}"]
        for tool, arguments, expected in calls:
            called = run(binary, home, "tools", "call", tool, "--args", json.dumps(arguments))
            if expected not in called.stdout:
                wrong.append(f"{tool}: {expected!r} is not in {called.stdout[:300]} {called.stderr[-300:]}")
    return wrong


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    binary, checkout = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    failed = 0
    for python in sys.argv[3:] or [sys.executable]:
        has_it = subprocess.run([python, "-c", "import owlclaw"], cwd="/", capture_output=True).returncode == 0
        for example, (tools, calls) in EXAMPLES.items():
            wrong = tried(binary, checkout, python, example, tools, calls)
            print(f"{example:<44} {'the package' if has_it else 'the stand-in':<13} {'ok' if not wrong else 'FAILED'}")
            for one in wrong:
                print("    " + one)
            failed += bool(wrong)
    print(f"{failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
