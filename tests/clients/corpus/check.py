"""Calls each function of handlers.py as a tool, and compares with what Python itself makes of it.

    check.py PYTHON BINARY [--table]      behind the server
    check.py PYTHON fastmcp [--table]     behind FastMCP

PYTHON is the interpreter that has what the functions import. Called by run.sh. Prints what differs. `--table` prints
a line for each function. With `--all` it is a failure that a function is skipped.
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from decimal import Decimal
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What one call may take; one that takes longer is taken to hang.
SECONDS = 20

CONFIGURATION = """
mcp_server:
  app: {app}
  python: {python}
  ledger: {{path: ./ledger.db}}
  governance:
    default_quota: {{max_calls_per_minute: 10000, max_calls_per_day: 10000}}
    default:
      tools: {{allow: ["*"]}}
"""


def exact(text):
    """JSON with each number as it is written, and the members of objects in order of their names."""
    return json.loads(text, parse_float=lambda number: Decimal(number).normalize())


class Server:
    """A server over standard streams, which is sent text: a client library would round numbers."""

    def __init__(self, command, environment, home):
        self.log = open(home / "server.log", "w")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, cwd=home, text=True,
            encoding="utf-8",
        )
        self.last = 0

    def send(self, message):
        text = json.dumps({"jsonrpc": "2.0", **message})
        # Numbers of which each digit counts.
        text = re.sub(r'"RAW:([^"]*)"', r"\1", text)
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.last += 1
        self.send({"id": self.last, "method": method, "params": params})
        timer = threading.Timer(SECONDS, self.process.kill)
        timer.start()
        try:
            while True:
                line = self.process.stdout.readline()
                if not line:
                    raise EOFError("it hangs or has ended")
                try:
                    answer = json.loads(line)
                except ValueError:
                    raise EOFError("its stream has been written to: %r" % line[:80]) from None
                if answer.get("id") == self.last and ("result" in answer or "error" in answer):
                    if answer == {"jsonrpc": "2.0", "id": self.last, "result": {}}:
                        raise EOFError("its stream has been written to: %r" % line[:80])
                    return answer
        finally:
            timer.cancel()

    def begin(self):
        who = {"name": "corpus", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who})
        self.send({"method": "notifications/initialized"})

    def names(self):
        names, page = set(), {}
        while page is not None:
            result = self.ask("tools/list", page)["result"]
            names.update(tool["name"] for tool in result["tools"])
            page = {"cursor": result["nextCursor"]} if result.get("nextCursor") else None
        return names

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def started(kind, python, home):
    if kind == "fastmcp":
        command = [python, str(HERE / "handlers.py"), "fastmcp"]
        server = Server(command, {**os.environ, "CORPUS_FRAMEWORK": "fastmcp"}, home)
    else:
        command = [kind, "start", "--transport", "stdio", "--config", str(home / "mcp-server.yaml")]
        environment = {"MCP_CLIENT_ID": "tester", "PATH": os.environ["PATH"], "HOME": str(home)}
        server = Server(command, environment, home)
    server.begin()
    return server


def what_differs(expected, answer):
    """`None`, or what a client gets instead of what is expected."""
    result = answer.get("result", {})
    seen = json.dumps(answer.get("error") or result, ensure_ascii=False)
    failed = "error" in answer or result.get("isError")
    if "error" in expected:
        if not failed:
            return "no error: %s" % seen
        return None if expected["error"].lower() in seen.lower() else "an error that does not say %r: %s" % (expected["error"], seen)
    if failed:
        return "an error: %s" % seen
    blocks = result.get("content", [])
    if "blocks" in expected:
        got = [{**block, **block.get("resource", {})} for block in blocks]
        wanted = expected["blocks"]
        is_right = len(got) == len(wanted) and all(has(one, part) for one, part in zip(got, wanted))
        return None if is_right else seen
    wanted = exact(json.dumps(expected["value"]))
    if "structuredContent" in result:
        structured = exact(json.dumps(result["structuredContent"]))
        if structured != wanted and structured != {"result": wanted}:
            return seen
    texts = [block.get("text") for block in blocks]
    if isinstance(wanted, str):
        is_said = texts == [wanted] or (texts == [json.dumps(wanted, ensure_ascii=False)] and "structuredContent" in result)
        return None if is_said else seen
    try:
        values = [exact(text) for text in texts]
    except (TypeError, ValueError):
        return seen
    if values == [wanted] or (not values and wanted in (None, [])):
        return None
    return seen


def has(block, part):
    return all(exact(block[key]) == exact(one) if key == "text" and one[:1] == "{" else block.get(key) == one for key, one in part.items())


def main():
    python, kind = sys.argv[1:3]
    environment = dict(os.environ, PYTHONPATH=str(HERE.parent.parent.parent / "crates/adapter-tools/python"))
    if kind == "fastmcp":
        environment["CORPUS_FRAMEWORK"] = "fastmcp"
    else:
        kind = os.path.abspath(kind)
    said = subprocess.run([python, "-W", "ignore", str(HERE / "handlers.py")], env=environment, capture_output=True, text=True)
    if said.returncode:
        sys.exit(said.stderr)
    plan = json.loads(said.stdout)
    differing = {}
    with tempfile.TemporaryDirectory(prefix="owlclaw-corpus-") as directory:
        home = Path(directory)
        (home / "mcp-server.yaml").write_text(CONFIGURATION.format(app=HERE / "app.py", python=python))
        server = started(kind, python, home)
        try:
            offered = server.names()
            for name, expected in plan["cases"].items():
                if name not in offered:
                    differing[name] = "it is not offered"
                    continue
                try:
                    answer = server.ask("tools/call", {"name": name, "arguments": expected["arguments"]})
                    differs = what_differs(expected, answer)
                except (EOFError, BrokenPipeError) as error:
                    differs = str(error)
                    server.end()
                    server = started(kind, python, home)
                if differs is not None:
                    differing[name] = differs
        finally:
            server.end()
        if "-v" in sys.argv:
            print((home / "server.log").read_text())
    if "--table" in sys.argv:
        for name, expected in plan["cases"].items():
            print("%s\t%s\t%s" % (expected["group"], name, differing.get(name, "equal")[:300]))
    else:
        for name, differs in differing.items():
            expected = {key: one for key, one in plan["cases"][name].items() if key not in ("group", "arguments")}
            print("%s\n    expected %s\n    got %s" % (name, json.dumps(expected)[:300], differs[:600]))
    for name, package in plan["skipped"].items():
        print("SKIPPED %s: there is no %s in %s" % (name, package, python))
    totals = collections.Counter(one["group"] for one in plan["cases"].values())
    wrong = collections.Counter(plan["cases"][name]["group"] for name in differing)
    print(", ".join("%s %d of %d" % (group, count - wrong[group], count) for group, count in totals.items()))
    print("%d handlers, %d differ from Python, %d skipped" % (len(plan["cases"]), len(differing), len(plan["skipped"])))
    is_short = "--all" in sys.argv and plan["skipped"]
    return 1 if differing or is_short else 0


if __name__ == "__main__":
    sys.exit(main())
