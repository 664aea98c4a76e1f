"""A server for tests, which is killed: `recorder.py stdio DIRECTORY`, or `recorder.py http DIRECTORY PORT`.

The tool `append` writes the mark of its call to DIRECTORY/executed, once a call. The last line of
DIRECTORY/processes is the process that serves.
"""

import json
import os
import random
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE, DIRECTORY = sys.argv[1:3]
SCHEMA = {"type": "object", "properties": {"mark": {"type": "string"}}, "additionalProperties": False}
# As many servers write it.
APPEND = {"name": "append", "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", **SCHEMA}}


def add(name, line):
    with open(os.path.join(DIRECTORY, name), "a") as file:
        file.write(line + "\n")


def call(mark):
    time.sleep(random.random() * 0.01)
    add("executed", mark)
    time.sleep(random.random() * 0.01)
    return {"content": [{"type": "text", "text": mark}]}


def answer(message):
    response = {"jsonrpc": "2.0", "id": message["id"]}
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            info = {"name": "recorder", "version": "1"}
            version = params["protocolVersion"]
            response["result"] = {"protocolVersion": version, "serverInfo": info, "capabilities": {"tools": {}}}
        case "tools/list":
            response["result"] = {"tools": [APPEND]}
        case "tools/call":
            response["result"] = call(params["arguments"]["mark"])
        case _:
            response["error"] = {"code": -32601, "message": "unknown method"}
    return (json.dumps(response) + "\n").encode()


def stdio():
    add("processes", str(os.getpid()))
    lock = threading.Lock()

    def respond(message):
        line = answer(message)
        with lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            threading.Thread(target=respond, args=(message,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sessions = set()

    def log_message(self, *_):
        pass

    def send(self, status, body=b"", session=None):
        self.send_response(status)
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send(405)

    def do_DELETE(self):
        self.send(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id")
        if message["method"] == "initialize":
            session = uuid.uuid4().hex
            self.sessions.add(session)
            self.send(200, answer(message), session)
        elif message["method"] != "server/discover" and session not in self.sessions:
            self.send(404)
        elif "id" not in message:
            self.send(202)
        else:
            self.send(200, answer(message))


if MODE == "stdio":
    stdio()
else:
    # The default is five: connections beyond it wait for seconds, or are lost.
    ThreadingHTTPServer.request_queue_size = 1024
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Handler)
    add("processes", str(os.getpid()))
    server.serve_forever()
