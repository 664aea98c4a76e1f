"""A server for tests: `upstream.py stdio [DIRECTORY]`, or `upstream.py http PORT [DIRECTORY]`.

It speaks the legacy revisions. Over HTTP each request has a connection, a session is forgotten when
`DIRECTORY/forget` exists, and no answer is sent while `DIRECTORY/hang` exists.
"""

import json
import os
import queue
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE = sys.argv[1]
DIRECTORY = sys.argv[-1]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "number"}}}
NAMES = ["ask", "count", "die", "echo", "env", "fail", "grow", "link", "log", "pid", "progress",
         "refuse", "roots", "sample", "slow", "unfit name", "who_asks"]
lock = threading.Lock()
grown = []
ready = {}
client = {}


def path(name):
    return os.path.join(DIRECTORY, name)


def exists(name):
    return os.path.exists(path(name))


def tools():
    found = []
    for name in NAMES + grown:
        tool = {"name": name, "description": "Does " + name + ".", "inputSchema": SCHEMA,
                "annotations": {"readOnlyHint": True, "title": "T " + name}}
        found.append(tool)
    found.append({"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "nothing"}}}})
    return found


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


class Failed(Exception):
    def __init__(self, code, message, data=None):
        self.error = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


def call(params, out):
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "echo":
        result = text(arguments.get("text", ""))
        result["_meta"] = {"example.com/kept": 1}
        return result
    if name == "count":
        with lock, open(path("count"), "a") as file:
            file.write("x")
        time.sleep(arguments.get("n", 0))
        return text("counted")
    if name == "die":
        with open(path("count"), "a") as file:
            file.write("x")
        os._exit(3)
    if name == "slow":
        with open(path("begun"), "a") as file:
            file.write("x")
        time.sleep(arguments.get("n", 1))
        return text("done")
    if name == "env":
        return text(dict(os.environ))
    if name == "pid":
        return text(str(os.getpid()))
    if name == "fail":
        return {"content": [{"type": "text", "text": "it failed"}], "isError": True}
    if name == "refuse":
        raise Failed(-32000, "not today", {"why": "closed"})
    if name == "link":
        return {"content": [
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "A"}}]}
    if name == "grow":
        grown.append("grown")
        out({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("grown")
    if name == "progress":
        token = params.get("_meta", {}).get("progressToken")
        for step in range(3):
            if token is not None:
                out({"jsonrpc": "2.0", "method": "notifications/progress",
                     "params": {"progressToken": token, "progress": step + 1, "total": 3, "message": "step"}})
        return text("done")
    if name == "log":
        out({"jsonrpc": "2.0", "method": "notifications/message",
             "params": {"level": "warning", "logger": "up", "data": "said"}})
        return text("done")
    if name == "ask":
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = ask("elicitation/create", {"message": "Who?", "requestedSchema": form}, out)
        return text(answer)
    if name == "roots":
        return text(ask("roots/list", {}, out))
    if name == "sample":
        message = {"role": "user", "content": {"type": "text", "text": "hi"}}
        return text(ask("sampling/createMessage", {"messages": [message], "maxTokens": 5}, out))
    if name == "who_asks":
        return text(client)
    if name in grown:
        return text("new")
    if name == "unfit name":
        return text("found")
    raise Failed(-32602, "unknown tool")


def ask(method, params, out):
    asked = "q-" + uuid.uuid4().hex
    ready[asked] = queue.Queue()
    out({"jsonrpc": "2.0", "id": asked, "method": method, "params": params})
    answer = ready[asked].get(timeout=60)
    return answer.get("result", {"error": answer.get("error")})


def answer(message, out):
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        client.update(params)
        return {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "upstream", "version": "7"},
                "capabilities": {"tools": {"listChanged": True}, "resources": {}, "prompts": {},
                                 "completions": {}, "logging": {}}}
    if method in ("ping", "logging/setLevel"):
        return {}
    if method == "tools/list":
        if exists("lists_hang"):
            time.sleep(3600)
        return {"tools": tools()}
    if method == "tools/call":
        return call(params, out)
    if method == "resources/list":
        return {"resources": [{"uri": "file:///a.txt", "name": "a"}, {"uri": "ui://app/x", "name": "x"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "file:///{name}", "name": "any"}]}
    if method == "resources/read":
        if params["uri"] == "file:///missing":
            raise Failed(-32002, "no such resource")
        return {"contents": [{"uri": params["uri"], "text": "content of " + params["uri"]}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "greet", "description": "Greets.",
                             "arguments": [{"name": "who", "required": True}]}]}
    if method == "prompts/get":
        said = "Hello " + params["arguments"]["who"]
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    if method == "completion/complete":
        ref = params["ref"]
        return {"completion": {"values": [ref.get("name") or ref.get("uri"), params["argument"]["value"] + "x"]}}
    raise Failed(-32601, "unknown method")


def respond(message, out):
    try:
        response = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message, out)}
    except Failed as failed:
        response = {"jsonrpc": "2.0", "id": message["id"], "error": failed.error}
    out(response)


def stdio():
    def out(message):
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    sys.stderr.write("upstream started\n")
    sys.stderr.flush()
    if DIRECTORY != "stdio":
        with open(path("started"), "a") as file:
            file.write(str(os.getpid()) + "\n")
        while exists("hang"):
            time.sleep(0.05)
        if exists("broken"):
            sys.stderr.write("no licence\n")
            sys.exit(1)
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            ready[message["id"]].put(message)
        elif "id" in message:
            threading.Thread(target=respond, args=(message, out), daemon=True).start()
        elif message["method"] == "notifications/cancelled":
            with open(path("cancelled"), "a") as file:
                file.write("x")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sessions = set()
    forgetting = threading.Lock()

    def log_message(self, *_):
        pass

    def plain(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.plain(405)

    def do_DELETE(self):
        self.plain(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        while exists("hang"):
            time.sleep(0.05)
        if exists("login") and self.headers.get("Authorization") != "Bearer right":
            return self.plain(401, b"", [("WWW-Authenticate", "Bearer")])
        message = json.loads(body)
        method = message.get("method")
        if method == "server/discover":
            return self.plain(400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no session"}}',
                              [("Content-Type", "application/json")])
        with Handler.forgetting:
            if exists("forget"):
                os.remove(path("forget"))
                Handler.sessions.clear()
        headers = []
        if method == "initialize":
            session = uuid.uuid4().hex
            Handler.sessions.add(session)
            headers.append(("Mcp-Session-Id", session))
            with open(path("sessions"), "a") as file:
                file.write("x")
        elif self.headers.get("Mcp-Session-Id") not in Handler.sessions:
            return self.plain(404)
        if method is None:
            ready[message["id"]].put(message)
            return self.plain(202)
        if "id" not in message:
            return self.plain(202)
        self.send_response(200)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

        def out(sent):
            with lock:
                self.wfile.write(b"data: " + json.dumps(sent).encode() + b"\n\n")
                self.wfile.flush()

        respond(message, out)


if MODE == "stdio":
    stdio()
else:
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    server.daemon_threads = True
    with open(path("port"), "w") as file:
        file.write(str(server.server_port))
    server.serve_forever()
