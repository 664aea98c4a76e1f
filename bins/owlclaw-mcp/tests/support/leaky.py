"""An MCP server that says its secrets in as many ways as it can: `leaky.py stdio KEY` or `leaky.py http PORT`."""
import base64
import binascii
import json
import os
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOLS = ["plain", "base64", "basic", "percent", "hex", "nested", "escaped", "name", "error", "refuse", "progress", "log",
         "die"]
lock = threading.Lock()


def escaped(value):
    return "".join("\\u%04x" % ord(it) for it in value)


def answer(message, secrets, out):
    method, params = message.get("method"), message.get("params") or {}
    said = " ".join(secrets)
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "resources": {}, "logging": {}},
                  "serverInfo": {"name": "leaky " + said, "version": "1"}, "instructions": said}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "description": "Says " + said, "inputSchema": {"type": "object"}}
                            for name in TOOLS]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "file:///a", "name": "a", "description": said}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    elif method == "resources/read":
        result = {"contents": [{"uri": "file:///a", "text": said}]}
    elif method == "tools/call":
        name = params["name"]
        token = (params.get("_meta") or {}).get("progressToken")
        sys.stderr.write("called with " + said + "\n")
        sys.stderr.flush()
        if name == "refuse":
            return {"error": {"code": -32000, "message": "not with " + said, "data": {"with": said}}}
        if name == "die":
            sys.stderr.write("dying with " + said + "\n")
            sys.stderr.flush()
            os._exit(3)
        if name == "progress" and token is not None:
            out({"jsonrpc": "2.0", "method": "notifications/progress",
                 "params": {"progressToken": token, "progress": 1, "message": said}})
        if name == "log":
            out({"jsonrpc": "2.0", "method": "notifications/message",
                 "params": {"level": "warning", "logger": "leaky", "data": said}})
        text = {
            "base64": lambda: " ".join(base64.b64encode(it.encode()).decode() for it in secrets),
            "basic": lambda: " ".join(base64.b64encode(("user:" + it).encode()).decode() for it in secrets),
            "percent": lambda: " ".join(urllib.parse.quote(it, safe="") for it in secrets),
            "hex": lambda: " ".join(binascii.hexlify(it.encode()).decode() for it in secrets),
            "nested": lambda: json.dumps({"deep": json.dumps({"secret": said})}),
        }.get(name, lambda: said)()
        result = {"content": [{"type": "text", "text": text}], "isError": name == "error"}
        if name == "name":
            result["structuredContent"] = {it: it for it in secrets}
    elif method in ("ping", "logging/setLevel"):
        result = {}
    else:
        return {"error": {"code": -32601, "message": "no " + str(method) + " for " + said}}
    if method == "tools/call" and params["name"] == "escaped":
        raw = json.dumps({"content": [{"type": "text", "text": "MARK"}], "isError": False})
        return {"raw": raw.replace("MARK", escaped(said))}
    return {"result": result}


def respond(message, secrets, out):
    if "id" not in message:
        return
    told = answer(message, secrets, out)
    if "raw" in told:
        out('{"jsonrpc":"2.0","id":' + json.dumps(message["id"]) + ',"result":' + told["raw"] + "}")
    else:
        out({"jsonrpc": "2.0", "id": message["id"], **told})


def stdio():
    secrets = [value for name, value in sorted(os.environ.items()) if name.startswith("LEAK_")] + sys.argv[2:]

    def out(message):
        with lock:
            sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
            sys.stdout.flush()

    for line in sys.stdin:
        respond(json.loads(line), secrets, out)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, value, headers=()):
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        for name, it in headers:
            self.send_header(name, it)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        base = "http://127.0.0.1:%d" % self.server.server_port
        if self.path.startswith("/.well-known/oauth-protected-resource"):
            return self.send(200, {"resource": base + "/oauth", "authorization_servers": [base]})
        if self.path == "/.well-known/oauth-authorization-server":
            return self.send(200, {
                "issuer": base, "token_endpoint": base + "/token", "response_types_supported": [],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported": ["client_secret_post"]})
        self.send(405, {})

    def do_DELETE(self):
        self.send(200, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/token":
            secret = urllib.parse.parse_qs(body).get("client_secret", ["none"])[0]
            return self.send(400, {"error": "invalid_client", "error_description": "wrong: " + secret})
        if self.path == "/oauth":
            return self.send(401, {}, [("WWW-Authenticate", "Bearer")])
        message = json.loads(body)
        secrets = [self.headers.get("Authorization", "none").removeprefix("Bearer "),
                   self.headers.get("X-Tenant-Key", "none")]
        if message.get("method") == "server/discover":
            return self.send(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": secrets[0]}})
        if message.get("method") == "tools/call" and message["params"]["name"] == "die":
            return self.send(500, "it failed with " + " ".join(secrets))
        if "id" not in message:
            return self.send(202, "")
        said = []
        respond(message, secrets, said.append)
        self.send(200, said[-1])


if sys.argv[1] == "stdio":
    stdio()
else:
    # The default is five: connections beyond it wait for seconds, or are lost.
    ThreadingHTTPServer.request_queue_size = 1024
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    server.daemon_threads = True
    server.serve_forever()
