#!/usr/bin/env python3
"""Let agents of other frameworks call tools, and check the text that their model reads.

    tests/clients/frameworks/run.sh BINARY [NAME]...

No network is needed once the packages are installed: the model is `model.py`, on loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from model import Model, meta

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from processes import end, free_port  # noqa: E402

PATIENCE = 120


class Shop:
    """The server with a tool of each kind; it can be started again at the same place."""

    def __init__(self, binary: Path, home: Path) -> None:
        self.binary, self.home, self.port = binary, home, free_port()
        shutil.copytree(HERE / "shop", home, dirs_exist_ok=True)
        self.key = self._key("agent")
        self.process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def _key(self, principal: str) -> str:
        words = [str(self.binary), "keys", "create", "--principal", principal]
        done = subprocess.run(words, cwd=self.home, capture_output=True, text=True, check=True)
        return next(word for word in done.stdout.split() if word.startswith("owl_"))

    def start(self, **environment: str) -> None:
        log = (self.home / "server.log").open("a")
        words = [str(self.binary), "start", "--port", str(self.port)]
        self.process = subprocess.Popen(
            words, cwd=self.home, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **environment}
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

    def __init__(self, python: Path, script: Path, plan: dict, log: Path) -> None:
        # No framework is to tell anybody that it runs.
        quiet = {"OTEL_SDK_DISABLED": "true", "CREWAI_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1", "HOME": str(log.parent)}
        self.process = subprocess.Popen(
            [str(python), str(script), json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env={**os.environ, **quiet, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.progress: list[list] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or []:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put("")

    def next(self) -> dict:
        while True:
            try:
                line = self.lines.get(timeout=PATIENCE)
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


def checks(name: str, cache: Path, binary: Path) -> tuple[list[tuple[str, bool, str]], str]:
    """Checks of a framework: what, whether, and what was seen; and what `_meta` costs its model."""
    found: list[tuple[str, bool, str]] = []
    cost = ""

    def check(what: str, ok: bool, seen: object = "") -> None:
        found.append((what, bool(ok), str(seen)[-600:]))

    model = Model()
    with tempfile.TemporaryDirectory() as directory:
        shop = Shop(binary, Path(directory) / "shop")
        python, script = cache / name / "bin/python", HERE / "drivers" / f"on_{name.replace('-', '_')}.py"
        if (HERE / "requirements" / name).is_dir():
            # Node looks for packages beside the script.
            python, script = Path("node"), cache / name / f"on_{name.replace('-', '_')}.mjs"
        plan = {"mcp": shop.url, "model": model.url, "key": shop.key}
        shop.start()
        agent = Driver(python, script, plan, Path(directory) / "agent.log")
        try:
            ready = agent.next()
            check("it connects with its key", ready.get("ready"), ready)
            if not ready.get("ready"):
                log = (Path(directory) / "agent.log").read_text()[-1500:]
                check("it starts", False, log)
                shop.stop()
                return found, cost

            def asked(id: str, tool: str, arguments: dict) -> tuple[dict, str]:
                said = agent.ask(f"CALL#{id} {tool} {json.dumps(arguments)}")
                return said, model.read(id) or ""

            said, read = asked("a", "stock-check", {"sku": "TEA"})
            check("a result is read", "42" in read, (said, read))
            offered = [tool.replace("_", "-") for tool in model.tools()]
            check("what may be seen is offered", any(it.endswith("stock-sell") for it in offered), offered)
            check("and nothing that is hidden", not any(it.endswith("stock-hidden") for it in offered), offered)
            for what, id, tool, arguments, words in [
                ("a refusal", "b", "stock-sell", {"sku": "TEA"}, "permission is missing"),
                ("a failure", "c", "stock-count", {"sku": "TEA"}, "the shelf of TEA has fallen down"),
                ("a deadline", "d", "stock-slow", {"seconds": 30}, "did not answer in time"),
                ("wrong arguments", "e", "stock-check", {"sku": 7, "note": "n"}, "sku"),
                ("a null for what was left out", "f", "stock-check", {"sku": "TEA", "note": None}, "42"),
            ]:
                said, read = asked(id, tool, arguments)
                check(f"{what} is read by the model", words in read, (said, read))
                check(f"{what} does not end the run", "said" in said, said)
            said, read = asked("p", "stock-walk", {"shelves": 3})
            check("a result that comes after progress is read", "walked" in read, (said, read))
            if ready["shows_progress"]:
                check("progress is shown", [1, 3, "shelf 1"] in agent.progress, agent.progress)
            shop.stop()
            shop.start(MCP_SERVER_TOOLS__QUOTA_META="false")
            # The first attempt may find out that the session is another server's.
            reads = [asked(id, "stock-walk", {"shelves": 1}) for id in ("g", "h")]
            check("it goes on when the server was started again", any("walked" in read for _, read in reads), reads)
            asked("i", "stock-sell", {"sku": "TEA"})
            check("what is left of quotas can be kept from the model", "io.owlclaw/quota" not in f"{model.read('h')}{model.read('i')}")
            cost = "; ".join(
                f"{meta(model.read(with_it) or '')} bytes of _meta with a {what}, {meta(model.read(without) or '')} without quotas"
                for what, with_it, without in [("result", "p", "h"), ("refusal", "b", "i")]
            )
        finally:
            agent.close()
        thief = Driver(python, script, {**plan, "key": shop.key[:-4] + "AAAA"}, Path(directory) / "thief.log")
        try:
            said = thief.next()
            if "ready" in said:
                said = thief.ask('CALL#z stock-check {"sku": "TEA"}')
            check("a wrong key gets nothing", "42" not in (model.read("z") or ""), said)
        finally:
            thief.close()
            shop.stop()
    return found, cost


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("names", nargs="+")
    asked = parser.parse_args()
    expected = json.loads((HERE / "expected-failures.json").read_text())
    surprises = 0
    for name in asked.names:
        found, cost = checks(name, asked.cache, asked.binary)
        print(f"{'read':7} {name}: {cost}", flush=True)
        for what, ok, seen in found:
            is_known = what in expected.get(name, {})
            surprises += ok == is_known
            verdict = {(True, False): "ok", (False, True): "known", (False, False): "FAILED", (True, True): "MENDED"}
            print(f"{verdict[ok, is_known]:7} {name}: {what}{'' if ok else '; seen: ' + seen}", flush=True)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
