"""A model without any intelligence, over the chat completions API on loopback.

A prompt has a line `CALL#ID TOOL ARGUMENTS`. The first request with an ID is answered with that call,
every later one with "done". All requests are kept: what a real model would have read is in them.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WANTED = re.compile(r"CALL#(\w+) (\S+) (\{.*\})")


class Model:
    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.called: set[str] = set()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = model.answer(body)
                if body.get("stream"):
                    self._send("text/event-stream", _stream(answer))
                else:
                    self._send("application/json", json.dumps(answer).encode())

            def _send(self, kind: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, body: dict) -> dict:
        self.requests.append(body)
        tools = [tool["function"]["name"] for tool in body.get("tools") or []]
        wanted = [found for message in body["messages"] for found in WANTED.findall(_text(message))]
        message: dict = {"role": "assistant", "content": "done"}
        calls = []
        if wanted and wanted[-1][0] not in self.called:
            id, tool, arguments = wanted[-1]
            self.called.add(id)
            # Frameworks rename tools: a prefix, or underscores.
            same = [name for name in tools if name.replace("-", "_").endswith(tool.replace("-", "_"))]
            calls = [(f"call_{id}", same[0] if same else tool, arguments)]
        elif "final_answer" in tools:
            calls = [("call_end", "final_answer", json.dumps({"answer": "done"}))]
        if calls:
            message["content"] = None
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in calls
            ]
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body.get("model", "none"),
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }

    def tools(self) -> list[str]:
        """Tools of the last request."""
        offered = [body["tools"] for body in self.requests if body.get("tools")]
        return [tool["function"]["name"] for tool in offered[-1]] if offered else []

    def read(self, id: str) -> str | None:
        """Text of a call's outcome that the model read; `None` if it was not asked again."""
        of_call = [
            body
            for body in self.requests
            if any(found[0] == id for message in body["messages"] for found in WANTED.findall(_text(message)))
        ]
        if len(of_call) < 2:
            return None
        before = [_text(message) for message in of_call[0]["messages"]]
        after = [_text(message) for message in of_call[1]["messages"]]
        # Some frameworks append to the last message.
        known = dict(enumerate(before))
        return "\n".join(text.removeprefix(known.get(place, "")) for place, text in enumerate(after))


def meta(text: str) -> int:
    """Bytes of the server's members of `_meta` in what a model read, as JSON or in Python's notation."""
    sum, end = 0, 0
    while (at := text.find("io.owlclaw/", end)) >= 0:
        start, depth, end = text.rfind("{", 0, at), 0, at
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                break
        end += 1
        sum += len(text[start:end].encode())
    return sum


def _text(message: dict) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content or ""


def _stream(answer: dict) -> bytes:
    (choice,) = answer["choices"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    first = {**answer, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last = {**first, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in (first, last)]
    return ("".join(lines) + "data: [DONE]\n\n").encode()
