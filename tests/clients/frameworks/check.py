#!/usr/bin/env python3
"""Let agents of other frameworks call tools, and check the text that their model reads.

    tests/clients/frameworks/run.sh BINARY [NAME]...

No network is needed once the packages are installed: the model is `model.py`, on loopback.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from facts import Facts, is_in
from model import Model, meta

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent.parent
sys.path.insert(0, str(HERE.parent))
from processes import end, free_port  # noqa: E402

PATIENCE = 120
# Groups of the corpus that are about the work of handlers, and not about what clients send and read.
NOT_CALLED = {"concurrency", "services", "frames", "streams"}
# What frameworks say that check arguments by the schema before the server does.
REFUSED = re.compile(r"error|invalid|not valid|expected|must", re.IGNORECASE)


class Shop:
    """The server with a tool of each kind; it can be started again at the same place."""

    def __init__(self, binary: Path, python: Path, home: Path, without: list[str]) -> None:
        self.binary, self.home, self.port = binary, home, free_port()
        shutil.copytree(HERE / "shop", home)
        (home / "corpus").mkdir()
        shutil.copy(HERE.parent / "corpus/handlers.py", home / "corpus")
        (home / "without.json").write_text(json.dumps(without))
        configuration = home / "mcp-server.yaml"
        configuration.write_text(configuration.read_text().replace("PYTHON", str(python)))
        self.key = self._command("keys", "create", "--principal", "agent").split()[0]
        self.process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def _variables(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home)}

    def _command(self, *words: str) -> str:
        done = subprocess.run(
            [str(self.binary), *words], cwd=self.home, capture_output=True, text=True, env={**os.environ, **self._variables}
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    def approve(self, approval: str) -> None:
        self._command("approvals", "approve", approval, "--by", "carla")

    def over_stdio(self, key: str) -> dict:
        """How a client starts the server."""
        arguments = ["start", "--transport", "stdio", "--config", str(self.home / "mcp-server.yaml")]
        return {"command": str(self.binary), "args": arguments, "env": {**self._variables, "OWLCLAW_API_KEY": key}}

    def start(self, **environment: str) -> None:
        log = (self.home / "server.log").open("a")
        words = [str(self.binary), "start", "--port", str(self.port)]
        variables = {**os.environ, **self._variables, **environment}
        self.process = subprocess.Popen(
            words, cwd=self.home, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=variables
        )
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError((self.home / "server.log").read_text()[-2000:])
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health/ready", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            end(self.process)


class Driver:
    """An agent in a process of its own."""

    def __init__(self, command: list[str], plan: dict, log: Path) -> None:
        # No framework is to tell anybody that it runs.
        quiet = {
            "OTEL_SDK_DISABLED": "true", "CREWAI_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1", "HOME": str(log.parent),
            "MCP_USE_ANONYMIZED_TELEMETRY": "false", "HAYSTACK_TELEMETRY_ENABLED": "False", "MASTRA_TELEMETRY_DISABLED": "1",
        }
        self.process = subprocess.Popen(
            [*command, json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            cwd=log.parent,
            env={**os.environ, **quiet, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.log = log
        self.lines: queue.Queue[str] = queue.Queue()
        self.progress: list[list] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or []:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put("")

    def next(self, patience: float = PATIENCE) -> dict:
        while True:
            try:
                line = self.lines.get(timeout=patience)
            except queue.Empty:
                return {"silent": True}
            said = json.loads(line) if line else {"ended": self.process.wait()}
            if "progress" not in said:
                return said
            self.progress.append(said["progress"])

    def ask(self, prompt: str) -> dict:
        try:
            self.process.stdin.write(json.dumps(prompt) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"ended": self.process.wait()}
        return self.next()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Trial:
    """One framework over one transport: what was checked, if it held, and what was seen."""

    def __init__(self, name: str, transport: str, asked: argparse.Namespace, plan: dict) -> None:
        self.name, self.transport, self.cases, self.facts = name, transport, plan["cases"], plan["facts"]
        self.command, self.packages = command(name, asked.cache), asked.cache / name
        self.binary, self.python = asked.binary, asked.python
        self.known = {**expected("checks").get(name, {})} | {
            f"{transport}: the answer of {handler} is read": why for handler, why in expected("handlers").get(name, {}).items()
        }
        # Tools that make the framework lose all others are not there for it.
        self.without = list(expected("tools that hide all others").get(name, {}))
        self.count = self.wrong = self.surprises = 0
        self.model = Model()
        self.is_slow = False
        # What is told beside the checks.
        self.shown, self.cost, self.handlers = "", "", ""

    def check(self, what: str, ok: object, seen: object = "") -> None:
        text = str(seen)
        what, seen = f"{self.transport}: {what}", text if len(text) < 900 else f"{text[:450]} … {text[-450:]}"
        is_known = what in self.known
        self.count += 1
        self.wrong += not ok
        self.surprises += bool(ok) == is_known
        verdict = {(True, False): "ok", (False, True): "known", (False, False): "FAILED", (True, True): "MENDED"}[bool(ok), is_known]
        if verdict != "ok" or "answer of" not in what:
            print(f"{verdict:7} {self.name}: {what}{'' if ok else '; seen: ' + seen}", flush=True)

    def plan(self, shop: Shop, key: str) -> dict:
        plan = {
            "mcp": shop.url, "model": self.model.url, "origin": self.model.origin, "key": key, "packages": str(self.packages),
            "binary": str(self.binary), "shop": str(shop.home),
        }
        return {**plan, "process": shop.over_stdio(key)} if self.transport == "stdio" else plan

    def run(self) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            shop = Shop(self.binary, self.python, Path(directory) / "shop", self.without)
            try:
                if self.transport == "http":
                    shop.start()
                agent = Driver(self.command, self.plan(shop, shop.key), within(directory, "agent"))
                try:
                    self._with(agent, shop)
                finally:
                    agent.close()
                # Programs hand no key on to servers that they start.
                if not (self.is_slow and self.transport == "stdio"):
                    self._thief(shop, within(directory, "thief"))
            finally:
                shop.stop()

    def _asked(self, agent: Driver, id: str, tool: str, arguments: dict) -> tuple[dict, str]:
        said = agent.ask(f"CALL#{id} {tool} {json.dumps(arguments)}")
        return said, self.model.read(id) or ""

    def _with(self, agent: Driver, shop: Shop) -> None:
        ready = agent.next()
        self.is_slow = ready.get("is_slow", False)
        self.check("it connects with its key", ready.get("ready"), ready)
        if not ready.get("ready"):
            return

        def asked(*call: object) -> tuple[dict, str]:
            return self._asked(agent, *call)

        said, read = asked("a", "stock-check", {"sku": "TEA"})
        self.check("a result is read", "42" in read, (said, read))
        offered = [tool.replace("-", "_") for tool in self.model.offered]
        named = [name for name in self.facts.names if name not in self.without]
        missing = {name for name in named if not any(it.endswith(name.replace("-", "_")) for it in offered)}
        self.check("each tool is offered to the model", not missing, f"{len(missing)} are not, {sorted(missing)[:3]} among them")
        self.check("and nothing that is hidden", not any(it.endswith("stock_hidden") for it in offered), offered)
        for what, id, tool, arguments, words in [
            ("a refusal", "b", "stock-sell", {"sku": "TEA"}, "permission is missing"),
            ("a failure", "c", "stock-count", {"sku": "TEA"}, "the shelf of TEA has fallen down"),
            ("a deadline", "d", "stock-slow", {"seconds": 30}, "did not answer in time"),
            ("wrong arguments", "e", "stock-check", {"sku": 7, "note": "n"}, "sku"),
            ("null for what may be null", "f", "stock-check", {"sku": "TEA", "note": None}, "42"),
            ("null for what may be left out", "n", "stock-check", {"sku": "TEA", "shelf": None}, "42"),
            ("a call that waits for a person", "o", "stock-order", {"sku": "TEA"}, "needs a confirmation"),
        ]:
            said, read = asked(id, tool, arguments)
            self.check(f"{what} is read by the model", words in read, (said, read))
            self.check(f"{what} does not end the run", "said" in said, said)
        approval = re.search(r"approvals approve (apr_\w+)", read)
        if approval:
            shop.approve(approval[1])
            said, read = asked("q", "stock-order", {"sku": "TEA"})
        self.check("what a person approved is done", approval and "ordered" in read, (said, read))
        said, read = asked("p", "stock-walk", {"shelves": 3})
        self.check("a result that comes after progress is read", "walked" in read, (said, read))
        self.shown = "shown" if ready["shows_progress"] else "cannot be shown"
        if ready["shows_progress"]:
            self.check("progress is shown", [1, 3, "shelf 1"] in agent.progress, agent.progress)
        self._corpus(asked, [name for name in named if name not in missing])
        if self.transport == "http":
            self._restarted(asked, shop)

    def _corpus(self, asked, names: list[str]) -> None:
        # Types are the same over every transport, and some start the server for each call.
        offered = [(name, texts) for name, texts in self.facts.answers.items() if name in names]
        called = dict(offered[:: 1 if self.transport == "http" and not self.is_slow else 8])
        differing, itself = {}, []
        for number, (name, texts) in enumerate(called.items()):
            said, read = asked(f"corpus{number}", name, self.cases[name]["arguments"])
            if all(is_in(text, read) for text in texts):
                continue
            if "error" in self.cases[name] and REFUSED.search(read):
                itself.append(name)
            else:
                differing[name] = (texts, read or said)
        refused = f", {len(itself)} refused by the framework as by the server" if itself else ""
        self.handlers = f"{len(called) - len(differing)} of {len(called)}{refused}"
        known = expected("handlers").get(self.name, {})
        for name in sorted({*differing, *known} & called.keys()):
            self.check(f"the answer of {name} is read", name not in differing, differing.get(name))

    def _restarted(self, asked, shop: Shop) -> None:
        shop.stop()
        shop.start(MCP_SERVER_TOOLS__QUOTA_META="false")
        # The first attempt may find out that the session is another server's.
        reads = [asked(id, "stock-walk", {"shelves": 1}) for id in ("g", "h")]
        self.check("it goes on when the server was started again", any("walked" in read for _, read in reads), reads)
        asked("i", "stock-sell", {"sku": "TEA"})
        texts = f"{self.model.read('h')}{self.model.read('i')}"
        self.check("what is left of quotas can be kept from the model", "io.owlclaw/quota" not in texts)
        read = {what: [meta(self.model.read(id) or "") for id in ids] for what, ids in [("result", "ph"), ("refusal", "bi")]}
        self.cost = "; ".join(f"{what} {with_it}, without quotas {without}" for what, (with_it, without) in read.items())

    def _thief(self, shop: Shop, log: Path) -> None:
        thief = Driver(self.command, self.plan(shop, shop.key[:-4] + "AAAA"), log)
        try:
            # Some try again and again.
            said = thief.next(45)
            if "ready" in said:
                said = thief.ask('CALL#z stock-check {"sku": "TEA"}')
            self.check("a wrong key gets nothing", "42" not in (self.model.read("z") or ""), said)
            reasons = ["401", "no such API key"] if self.transport == "http" else ["OWLCLAW_API_KEY"]
            self.check("a wrong key is said to be the reason", any(it in json.dumps(said) for it in reasons), said)
        finally:
            thief.close()


def within(directory: str, name: str) -> Path:
    """The log of an agent, in a home of its own."""
    home = Path(directory) / name
    home.mkdir()
    return home / "log"


def command(name: str, cache: Path) -> list[str]:
    script = f"on_{name.replace('-', '_')}"
    if (HERE / "requirements" / name).is_dir():
        # Node looks for packages beside the script.
        if (HERE / "drivers" / f"{script}.mjs").exists():
            return ["node", str(cache / name / f"{script}.mjs")]
        # A program, of which each prompt is a run.
        return ["python3", str(HERE / "drivers" / f"{script}.py")]
    return [str(cache / name / "bin/python"), str(HERE / "drivers" / f"{script}.py")]


def expected(what: str) -> dict[str, dict[str, str]]:
    return json.loads((HERE / "expected-failures.json").read_text())[what]


def the_plan(asked: argparse.Namespace) -> dict:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "crates/adapter-tools/python")}
    words = [str(asked.python), "-W", "ignore", str(HERE.parent / "corpus/handlers.py")]
    plan = json.loads(subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout)
    cases = {
        name: case
        for name, case in plan["cases"].items()
        # Some frameworks cannot send numbers of more than 64 bits digit by digit.
        if case["group"] not in NOT_CALLED and "RAW:" not in json.dumps(case["arguments"])
    }
    with tempfile.TemporaryDirectory() as directory:
        shop = Shop(asked.binary, asked.python, Path(directory) / "shop", [])
        how = shop.over_stdio(shop.key)
        facts = Facts([how["command"], *how["args"]], {**os.environ, **how["env"]}, shop.home, cases)
    return {"cases": cases, "facts": facts}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True, help="interpreter of the application")
    parser.add_argument("--transport", choices=["http", "stdio"], action="append")
    parser.add_argument("names", nargs="+")
    asked = parser.parse_args()
    plan = the_plan(asked)
    print(f"{len(plan['facts'].names)} tools, {len(plan['facts'].answers)} of them are called for their text", flush=True)
    surprises, rows = 0, []
    for name in asked.names:
        for transport in asked.transport or ["http", "stdio"]:
            began = time.monotonic()
            trial = Trial(name, transport, asked, plan)
            trial.run()
            surprises += trial.surprises
            rows.append(
                f"| {name} | {transport} | {trial.count - trial.wrong} of {trial.count} | {trial.handlers} | {trial.shown} "
                f"| {trial.cost} | {time.monotonic() - began:.0f} s |"
            )
    print(f"\n{datetime.date.today()}\n| Framework | Transport | Checks | Handlers read | Progress | Bytes of _meta | Time |")
    print("\n".join(["|---|---|---|---|---|---|---|", *rows]))
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
