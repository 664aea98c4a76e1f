"""What the server itself offers and answers, asked without any client library."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path


class Facts:
    """The names of the tools, and the text of what each handler of the corpus answers."""

    def __init__(self, command: list[str], environment: dict[str, str], home: Path, cases: dict[str, dict]) -> None:
        self._last = 0
        with (home / "facts.log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=home, text=True
            )
            who = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "facts", "version": "1"}}
            self._ask("initialize", who)
            self._send({"method": "notifications/initialized"})
            self.names, page = [], {}
            while page is not None:
                result = self._ask("tools/list", page)
                self.names += [tool["name"] for tool in result["tools"]]
                page = {"cursor": result["nextCursor"]} if result.get("nextCursor") else None
            self.answers: dict[str, list[str]] = {}
            for name, case in cases.items():
                blocks = self._ask("tools/call", {"name": name, "arguments": case["arguments"]})["content"]
                # Pictures and sounds have no text to be compared.
                if blocks and all(block["type"] == "text" for block in blocks):
                    self.answers[name] = [block["text"] for block in blocks]
            self._process.stdin.close()
            self._process.wait()

    def _send(self, message: dict) -> None:
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def _ask(self, method: str, params: dict) -> dict:
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._last and "method" not in answer:
                return answer["result"]
        raise RuntimeError("the server has ended")


def is_in(text: str, read: str) -> bool:
    """Says if what a model read has `text`, as it is or within JSON or Python's notation of it."""
    if len(text) < 4:
        return re.search(rf"(?<![\w.]){re.escape(text)}(?![\w.])", read.replace("\\n", " ")) is not None
    return text in read or _plain(text) in _plain(read)


def _plain(text: str) -> str:
    """The text without escapes, quotes and blanks, which is how notations differ."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = re.sub(r"\\[nrt]|[\s\\\"']", "", text)
    return re.sub(r"\b(True|False|None)\b", lambda found: {"None": "null"}.get(found[0], found[0].lower()), text)
