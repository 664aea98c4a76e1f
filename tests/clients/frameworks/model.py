"""A model without any intelligence, over the interfaces of `dialects.py` on loopback.

A prompt has a line `CALL#ID TOOL ARGUMENTS`. The first request with an ID that offers tools is answered with that
call, every later one with "done". What a real model would have read is kept.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dialects

WANTED = re.compile(r"CALL#(\w+) (\S+) (\{.*\})")


class Model:
    def __init__(self) -> None:
        self.offered: list[str] = []
        self.called: set[str] = set()
        # The texts of the first two requests with each ID.
        self.asked: dict[str, list[list[str]]] = {}
        # Paths that nobody knows here.
        self.strange: set[str] = set()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                dialect = dialects.of(self.path)
                if dialect is None:
                    model.strange.add(self.path)
                    self._send(404, "application/json", b"{}")
                    return
                asked = dialect.read(self.path, json.loads(body))
                answer = dialect.write(asked, model.calls(asked))
                self._send(200, "text/event-stream" if asked.streams else "application/json", answer)

            def do_GET(self) -> None:
                model.strange.add(self.path)
                self._send(404, "application/json", b"{}")

            def _send(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.origin}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def calls(self, asked: dialects.Asked) -> list[dialects.Call]:
        """Calls that a request is answered with."""
        wanted = [found for text in asked.texts for found in WANTED.findall(text)]
        for id in {found[0] for found in wanted}:
            before = self.asked.setdefault(id, [])
            # Else it is about a title for the conversation, or the like.
            if len(before) < 2 and (asked.tools or before and len(asked.texts) > len(before[0])):
                before.append(asked.texts)
        if not asked.tools:
            return []
        self.offered = asked.tools
        if wanted and wanted[-1][0] not in self.called:
            id, tool, arguments = wanted[-1]
            self.called.add(id)
            # Frameworks rename tools: a prefix, or underscores.
            same = [name for name in asked.tools if name.replace("-", "_").endswith(tool.replace("-", "_"))]
            return [dialects.Call(f"call_{id}", min(same, key=len, default=tool), arguments)]
        if "final_answer" in asked.tools:
            return [dialects.Call("call_end", "final_answer", json.dumps({"answer": "done"}))]
        return []

    def read(self, id: str) -> str | None:
        """Text of a call's outcome that the model read; `None` if it was not asked again."""
        if len(self.asked.get(id, [])) < 2:
            return None
        before, after = self.asked[id]
        # Some frameworks append to the last message.
        known = dict(enumerate(before))
        return "\n".join(text.removeprefix(known.get(place, "")) for place, text in enumerate(after))


def meta(text: str) -> int:
    """Bytes of the server's members of `_meta` in what a model read, as JSON or in Python's notation."""
    sum, end = 0, 0
    while (at := text.find("io.owlclaw/", end)) >= 0:
        # The object that it is a member of, from its bracket to the one that closes it.
        start = _bracket(text, range(at, -1, -1), "}")
        end = max(_bracket(text, range(start + 1, len(text)), "{"), at) + 1
        sum += len(text[start:end].encode())
    return sum


def _bracket(text: str, places: range, opens: str) -> int:
    """Where the object ends that the places lie in; objects within it begin with `opens`."""
    depth = 0
    for at in places:
        if text[at] == opens:
            depth += 1
        elif text[at] in "{}":
            if depth == 0:
                return at
            depth -= 1
    return places[-1] if places else 0
