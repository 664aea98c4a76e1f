"""A server for tests: `upstream.py stdio [DIRECTORY]`, or `upstream.py http PORT [DIRECTORY]`.

It speaks the legacy revisions, or the one that is the variable `REVISION`, which over standard streams may be
the modern one. Over HTTP each request has a connection, a session is forgotten when `DIRECTORY/forget` exists, and no
answer is sent while `DIRECTORY/hang` exists. Ids of answers are written as `7.0` while `DIRECTORY/float_ids` exists. The method in `DIRECTORY/busy` is answered 429 with the `Retry-After` behind it, and when it was asked is noted in `DIRECTORY/busy_asked`. The method in `DIRECTORY/refused` is answered with the error code behind it. Over standard streams it ends at `server/discover` while `DIRECTORY/strict` exists.
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
REVISION = os.environ.get("REVISION")
MODERN = "2026-07-28"
IS_MODERN = REVISION == MODERN
OF_META = "io.modelcontextprotocol/"
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "number"}}}
NAMES = ["ask", "ask_url", "count", "die", "echo", "env", "fail", "grow", "hang_up", "link", "log", "long", "meta",
         "pid", "progress", "refuse", "roots", "sample", "shape", "slow", "touch", "unfit name", "who_asks"]
lock = threading.Lock()
grown = []
ready = {}
client = {}
subscribed = set()
# Tasks of 2025-11-25, with the time at which each is done.
tasks = {}
# Requests of `subscriptions/listen`, by id: what each hears of.
listening = {}


def path(name):
    return os.path.join(DIRECTORY, name)


def exists(name):
    return os.path.exists(path(name))


def list_of_tools():
    found = []
    for name in NAMES + grown:
        tool = {"name": name, "description": "Does " + name + ".", "inputSchema": SCHEMA,
                "annotations": {"readOnlyHint": True, "title": "T " + name}}
        if name == "echo":
            tool["icons"] = [{"src": "https://example.com/echo.png"}]
        if name in ("slow", "long") and REVISION == "2025-11-25":
            tool["execution"] = {"taskSupport": "optional"}
        if name == "echo" and exists("members"):
            with open(path("members")) as file:
                more = json.load(file)
            tool["annotations"].update(more.pop("annotations", {}))
            tool.update(more)
        if name == "echo" and exists("words"):
            with open(path("words")) as file:
                tool["description"] = file.read()
        found.append(tool)
    if exists("wordy"):
        found.append({"name": "", "inputSchema": SCHEMA})
        found.append({"name": "wordy", "description": "D" * 20000, "inputSchema": SCHEMA})
    found.append({"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "nothing"}}}})
    if exists("apps"):
        page = {"ui": {"resourceUri": "ui://app/x"}, "ui/resourceUri": "ui://app/x"}
        found.append({"name": "show", "inputSchema": SCHEMA, "_meta": page})
        found.append({"name": "refresh", "inputSchema": SCHEMA, "_meta": {"ui": {"visibility": ["app"]}}})
        found.append({"name": "plan", "inputSchema": SCHEMA, "_meta": {"ui": {"visibility": ["model"]}}})
    if exists("dirty"):
        found.append({"name": "dirty", "inputSchema": SCHEMA})
    if exists("odd"):
        found[0:0] = [{"description": "No name.", "inputSchema": SCHEMA}, {"name": 7, "inputSchema": SCHEMA},
                      {"name": "flat", "inputSchema": "none"}, "text"]
        found.append({"name": "echo", "description": "Another.", "inputSchema": SCHEMA})
    return found


def with_odd(items, *odd):
    return [*odd, *items] if exists("odd") else items


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


class Failed(Exception):
    def __init__(self, code, message, data=None):
        self.error = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


class NeedsInput(Exception):
    """A question of the modern revision, which is a result."""


def note(name, line):
    with lock, open(path(name), "a") as file:
        file.write(line + "\n")


def changed(uri, out):
    """Tells those who listen to `uri`."""
    told = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
    if uri in subscribed:
        out(told)
    for listener, wanted in list(listening.items()):
        if uri in wanted.get("resourceSubscriptions", []):
            out({**told, "params": {"uri": uri, "_meta": {OF_META + "subscriptionId": listener}}})


def list_changed(kind, out):
    told = {"jsonrpc": "2.0", "method": "notifications/" + kind + "/list_changed", "params": {}}
    if not IS_MODERN:
        out(told)
    for listener, wanted in list(listening.items()):
        if wanted.get(kind + "ListChanged"):
            out({**told, "params": {"_meta": {OF_META + "subscriptionId": listener}}})


def call(params, out):
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "touch":
        changed(arguments["text"], out)
        return text("touched")
    if name == "ask_url":
        asked = {"mode": "url", "message": "Look", "url": arguments.get("text", "https://example.com/pay")}
        if arguments.get("n") == 2:
            raise Failed(-32042, "look first", {"elicitations": [{**asked, "elicitationId": "e-1"}]})
        if not IS_MODERN:
            asked["elicitationId"] = "e-1"
        return text(ask("elicitation/create", asked, params, out))
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
    if name == "shape" and arguments.get("text") == "no number":
        return {"content": [], "structuredContent": {"of": "Jane Roe", "n": float("nan")}}
    if name == "shape" and arguments.get("text") == "no text":
        return {"content": [{"type": "text", "text": 7, "of": "Jane Roe"}]}
    if name == "shape":
        return {**(text("two") if arguments.get("text") else {}), "structuredContent": [1, 2]}
    if name == "hang_up":
        # As a proxy does with streams that are long silent.
        for listener in list(listening):
            out({"jsonrpc": "2.0", "id": listener, "result": {
                "resultType": "complete", "_meta": {OF_META + "subscriptionId": listener}}})
        listening.clear()
        grown.append("unheard")
        return text("hung up")
    if name == "long" and IS_MODERN:
        with lock:
            task = "task-" + str(len(tasks) + 1)
            tasks[task] = time.monotonic() + arguments.get("n", 1)
        note("tasks", "created " + task)
        raise NeedsInput({"resultType": "task", **told_of(task)})
    if name in ("slow", "long") and "task" in params:
        with lock:
            task = "task-" + str(len(tasks) + 1)
            tasks[task] = time.monotonic() + arguments.get("n", 1)
        note("tasks", "created " + task)
        note("begun", "x")
        return {"task": told_of(task)}
    if name in ("slow", "long"):
        with open(path("begun"), "a") as file:
            file.write("x")
        time.sleep(arguments.get("n", 1))
        return text("done")
    if name == "env":
        return text(dict(os.environ))
    if name == "meta":
        return text(params.get("_meta", {}))
    if name == "pid":
        return text(str(os.getpid()))
    if name == "fail":
        return {"content": [{"type": "text", "text": "it failed"}], "isError": True}
    if name == "refuse":
        raise Failed(-32000, "not today", {"why": "closed"})
    if name == "link":
        return {"content": [
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a",
             "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "x" * 100_000}},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "A", "_meta": {"example.com/of": "contents"}},
             "_meta": {"example.com/of": "block", "io.owlclaw/quota": 7, "ui": {"resourceUri": "ui://app/x"}}}]}
    if name == "grow":
        grown.append("grown")
        list_changed("tools", out)
        return text("grown")
    if name == "progress":
        token = params.get("_meta", {}).get("progressToken")
        for step in range(3):
            if token is not None:
                out({"jsonrpc": "2.0", "method": "notifications/progress",
                     "params": {"progressToken": token, "progress": step + 1, "total": 3, "message": "step"}})
        return text("done")
    if name == "log":
        if IS_MODERN and OF_META + "logLevel" not in params.get("_meta", {}):
            return text("not wanted")
        out({"jsonrpc": "2.0", "method": "notifications/message",
             "params": {"level": "warning", "logger": "up", "data": "said"}})
        return text("done")
    if name == "ask":
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = ask("elicitation/create", {"message": "Who?", "requestedSchema": form}, params, out)
        return text(answer)
    if name == "roots":
        return text(ask("roots/list", {}, params, out))
    if name == "sample":
        message = {"role": "user", "content": {"type": "text", "text": "hi"}}
        return text(ask("sampling/createMessage", {"messages": [message], "maxTokens": 5}, params, out))
    if name == "who_asks":
        return text(params["_meta"] if IS_MODERN else client)
    if name == "dirty":
        dirty = "a\u001b[31mb\u202ec\u200b"
        if arguments.get("text") == "error":
            raise Failed(-32000, dirty, {"why": dirty})
        if arguments.get("text") == "ask":
            schema = {"type": "object", "properties": {"n": {"type": "string", "description": dirty, "enum": [dirty]}, "a": {"type": "string"}}}
            return text(ask("elicitation/create", {"message": dirty, "requestedSchema": schema}, params, out))
        out({"jsonrpc": "2.0", "method": "notifications/message",
             "params": {"level": "warning", "logger": dirty, "data": {"said": dirty}}})
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            out({"jsonrpc": "2.0", "method": "notifications/progress",
                 "params": {"progressToken": token, "progress": 1, "message": dirty}})
        return {"content": [{"type": "text", "text": dirty},
                            {"type": "resource_link", "uri": "file:///a.txt", "name": dirty, "description": dirty},
                            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": dirty, "mimeType": dirty}}],
                "_meta": {"example.com/said": [dirty]},
                "structuredContent": {"deep": [dirty], "n": 12345678901234567890.5}}
    if name in grown:
        return text("new")
    if name in ("show", "refresh", "plan") and exists("apps"):
        with lock, open(path("count"), "a") as file:
            file.write("x")
        return {**text(name), "_meta": {"ui": {"resourceUri": "ui://app/x"}}}
    if name == "unfit name":
        return text("found")
    raise Failed(-32602, "unknown tool")


def told_of(task, status="working"):
    kept = {"ttlMs": None, "pollIntervalMs": 50} if IS_MODERN else {"ttl": None, "pollInterval": 50}
    return {"taskId": task, "status": status, "createdAt": "2026-01-01T00:00:00Z",
            "lastUpdatedAt": "2026-01-01T00:00:00Z", **kept}


def ask(method, params, of_call, out):
    if IS_MODERN:
        answered = of_call.get("inputResponses", {}).get("q")
        if answered is None:
            capability = {"elicitation/create": "elicitation", "roots/list": "roots"}.get(method, "sampling")
            declared = of_call["_meta"][OF_META + "clientCapabilities"].get(capability)
            is_declared = declared is not None and ("mode" not in params or params["mode"] in declared)
            # A server that does not keep to it asks all the same.
            if not is_declared and "n" not in of_call.get("arguments", {}):
                return "the client has not declared " + capability
            raise NeedsInput({"resultType": "input_required", "requestState": "kept",
                              "inputRequests": {os.environ.get("KEY", "q"): {"method": method, "params": params}}})
        return answered if of_call.get("requestState") == "kept" else "no state"
    asked = "q-" + uuid.uuid4().hex
    ready[asked] = queue.Queue()
    out({"jsonrpc": "2.0", "id": asked, "method": method, "params": params})
    answer = ready[asked].get(timeout=60)
    return answer.get("result", {"error": answer.get("error")})


def offered():
    capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "prompts": {}, "logging": {}}
    if REVISION != "2024-11-05":
        capabilities["completions"] = {}
    if REVISION == "2025-11-25":
        capabilities["tasks"] = {"requests": {"tools": {"call": {}}}, "cancel": {}}
    if IS_MODERN:
        capabilities["extensions"] = {"io.modelcontextprotocol/tasks": {}}
    return capabilities


def answer(message, out):
    method, params = message["method"], message.get("params") or {}
    if method == "initialize" and IS_MODERN:
        raise Failed(-32022, "unsupported version", {"supported": [MODERN], "requested": params["protocolVersion"]})
    if method == "initialize":
        client.update(params)
        return {"protocolVersion": REVISION or params["protocolVersion"], "serverInfo": {"name": "upstream", "version": "7"},
                "capabilities": offered()}
    if method == "server/discover" and IS_MODERN:
        return {"supportedVersions": [MODERN], "capabilities": offered(),
                "_meta": {OF_META + "serverInfo": {"name": "upstream", "version": "7"}}}
    if method.startswith("tasks/") and (params["taskId"] not in tasks or exists("forgets_tasks")):
        raise Failed(-32602, "no such task")
    if method == "tasks/get":
        if time.monotonic() < tasks[params["taskId"]]:
            return told_of(params["taskId"])
        done = {"result": {"resultType": "complete", **text("done")}} if IS_MODERN else {}
        return {**told_of(params["taskId"], "completed"), **done}
    if method == "tasks/result":
        while time.monotonic() < tasks[params["taskId"]]:
            time.sleep(0.02)
        return text("done")
    if method == "tasks/cancel":
        tasks[params["taskId"]] = 0
        note("tasks", "cancelled " + params["taskId"])
        note("cancelled", "x")
        return told_of(params["taskId"], "cancelled")
    if method == "resources/subscribe" and not IS_MODERN:
        if params["uri"] == "file:///deaf.txt":
            raise Failed(-32602, "not this one")
        subscribed.add(params["uri"])
        note("subscribed", "+" + params["uri"])
        return {}
    if method == "resources/unsubscribe" and not IS_MODERN:
        subscribed.discard(params["uri"])
        note("subscribed", "-" + params["uri"])
        return {}
    if method in ("ping", "logging/setLevel"):
        return {}
    if exists("refused"):
        with open(path("refused")) as file:
            refused, code = file.read().split()
        if method == refused:
            raise Failed(int(code), "not now")
    if method == "tools/list":
        if exists("lists_hang"):
            time.sleep(3600)
        return {"tools": None if exists("no_list") else list_of_tools()}
    if method == "tools/call":
        return call(params, out)
    if method == "resources/list":
        page = {"uri": "ui://app/x", "name": "x"}
        if exists("csp"):
            with open(path("csp")) as file:
                page["_meta"] = {"ui": {"csp": {"connectDomains": [file.read()]}}}
        name = "a\u001b[31mb\u202ec\u200b" if exists("dirty") else "a"
        return {"resources": with_odd([{"uri": "file:///a.txt", "name": name}, page], {"uri": 7, "name": "b"})}
    if method == "resources/templates/list":
        name = "a\u001b[31mb\u202ec\u200b" if exists("dirty") else "any"
        return {"resourceTemplates": with_odd([{"uriTemplate": "file:///{name}", "name": name}], {"name": "none"})}
    if method == "resources/read":
        if params["uri"] == "file:///dirty":
            return {"contents": [{"uri": params["uri"], "text": "a\u001b[31mb\u202ec\u200b"}]}
        if params["uri"] == "file:///missing":
            raise Failed(-32002, "no such resource")
        if params["uri"] == "file:///burning":
            raise Failed(-32603, "the disk is on fire")
        if params["uri"].startswith("ui://") and exists("page"):
            with open(path("page")) as file:
                return {"contents": [{"uri": params["uri"], "mimeType": "text/html", "text": file.read(),
                                      "_meta": {"ui": {"resourceUri": "ui://app/x"}, "ui/resourceUri": "ui://app/x"}}]}
        return {"contents": [{"uri": params["uri"], "text": "content of " + params["uri"]}]}
    if method == "prompts/list":
        greets = "Greets."
        if exists("greets"):
            with open(path("greets")) as file:
                greets = file.read()
        return {"prompts": with_odd([{"name": "greet", "description": greets,
                                      "arguments": [{"name": "who", "required": True}]}],
                                    {"name": "greet", "arguments": "none"})}
    if method == "prompts/get":
        if params["arguments"]["who"] == "nobody":
            raise Failed(-32603, "there is nobody to greet")
        said = "Hello " + params["arguments"]["who"]
        if exists("dirty"):
            said = "a\u001b[31mb\u202ec\u200b"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    if method == "completion/complete":
        ref = params["ref"]
        values = [ref.get("name") or ref.get("uri"), params["argument"]["value"] + "x"]
        return {"completion": {"values": ["a\u001b[31mb\u202ec\u200b"] if exists("dirty") else values}}
    raise Failed(-32601, "unknown method")


def respond(message, out):
    try:
        result = answer(message, out)
        if IS_MODERN:
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        response = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    except NeedsInput as needed:
        response = {"jsonrpc": "2.0", "id": message["id"], "result": needed.args[0]}
    except Failed as failed:
        response = {"jsonrpc": "2.0", "id": message["id"], "error": failed.error}
    if exists("float_ids"):
        response["id"] = float(response["id"])
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
        if message.get("method") == "server/discover" and exists("strict"):
            sys.stderr.write("expected initialize\n")
            sys.stderr.flush()
            os._exit(1)
        if "method" not in message:
            ready[message["id"]].put(message)
        elif message["method"] == "subscriptions/listen" and IS_MODERN:
            wanted = dict(message["params"]["notifications"])
            wanted["resourceSubscriptions"] = [it for it in wanted.get("resourceSubscriptions", [])
                                               if it != "file:///deaf.txt"]
            listening[message["id"]] = wanted
            note("subscribed", "listen " + " ".join(wanted["resourceSubscriptions"]))
            out({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                 "params": {"notifications": wanted, "_meta": {OF_META + "subscriptionId": message["id"]}}})
        elif "id" in message:
            threading.Thread(target=respond, args=(message, out), daemon=True).start()
        elif message["method"] == "notifications/cancelled":
            if listening.pop(message["params"]["requestId"], None) is not None:
                continue
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
        base = "http://127.0.0.1:" + str(self.server.server_port)
        found = None
        if self.path.startswith("/.well-known/oauth-protected-resource") and exists("login"):
            found = {"resource": base + "/mcp", "authorization_servers": [base]}
        elif self.path == "/.well-known/oauth-authorization-server":
            found = {"issuer": base, "token_endpoint": base + "/token",
                     "grant_types_supported": ["client_credentials"], "response_types_supported": [],
                     "token_endpoint_auth_methods_supported": ["client_secret_post"]}
        elif self.path.startswith("/.well-known/"):
            return self.plain(404)
        if found is None:
            return self.plain(405)
        self.plain(200, json.dumps(found).encode(), [("Content-Type", "application/json")])

    def do_DELETE(self):
        self.plain(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/token":
            note("tokens", body.decode())
            token = {"access_token": "right", "token_type": "Bearer", "expires_in": 3600}
            return self.plain(200, json.dumps(token).encode(), [("Content-Type", "application/json")])
        while exists("hang"):
            time.sleep(0.05)
        if exists("login") and self.headers.get("Authorization") != "Bearer right":
            return self.plain(401, b"", [("WWW-Authenticate", "Bearer")])
        message = json.loads(body)
        method = message.get("method")
        if exists("busy"):
            with open(path("busy")) as file:
                refused, seconds = file.read().split()
            if method == refused:
                note("busy_asked", str(time.time()))
                return self.plain(429, b"too many", [("Retry-After", seconds)])
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
        if method == "tools/call" and (message["params"].get("arguments") or {}).get("text") == "503":
            return self.plain(503, b"busy")
        if method == "tools/call" and (message["params"].get("arguments") or {}).get("text") == "429":
            return self.plain(429, b"too many", [("Retry-After", "7")])
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
    # The default is five: connections beyond it wait for seconds, or are lost.
    ThreadingHTTPServer.request_queue_size = 1024
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    server.daemon_threads = True
    with open(path("port"), "w") as file:
        file.write(str(server.server_port))
    server.serve_forever()
