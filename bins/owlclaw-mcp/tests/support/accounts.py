"""An MCP server that knows its callers by their tokens: `accounts.py stdio` with ACCOUNT_TOKEN, or `accounts.py http PORT`.

The file `accounts.json` has the name of each token; a token that it does not have is refused. Requests are noted in the
file `seen`, a line for each: the account, the headers, and the method.
"""
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def account(token):
    with open("accounts.json") as file:
        return json.load(file).get(token)


def answer(message, name):
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "resources": {"subscribe": True}},
                  "serverInfo": {"name": "accounts", "version": "1"}}
    elif method == "tools/list":
        names = ["whoami", "only_for_" + name]
        result = {"tools": [{"name": it, "inputSchema": {"type": "object"}} for it in names]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "file:///me", "name": "me"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    elif method == "resources/read":
        result = {"contents": [{"uri": "file:///me", "text": name}]}
    elif method == "tools/call":
        if params["name"] not in ("whoami", "only_for_" + name):
            return {"error": {"code": -32602, "message": "Unknown tool"}}
        result = {"content": [{"type": "text", "text": name}]}
    else:
        result = {}
    return {"result": result}


def respond(message, name):
    if "id" not in message:
        return None
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message, name)})


def stdio():
    name = account(os.environ.get("ACCOUNT_TOKEN", ""))
    if name is None:
        sys.exit("ACCOUNT_TOKEN is of nobody")
    for line in sys.stdin:
        out = respond(json.loads(line), name)
        if out is not None:
            print(out, flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def plain(self, status, body=b"", headers=()):
        self.send_response(status)
        for header in headers:
            self.send_header(*header)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.plain(405)

    def do_DELETE(self):
        self.plain(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        message = json.loads(body)
        name = account((self.headers.get("Authorization") or "").removeprefix("Bearer "))
        with open("seen", "a") as file:
            file.write(json.dumps([name, dict(self.headers), message.get("method")]) + "\n")
        if name is None:
            self.plain(401, b"{}", [("WWW-Authenticate", "Bearer")])
            return
        out = respond(message, name)
        if out is None:
            self.plain(202)
        else:
            self.plain(200, out.encode(), [("Content-Type", "application/json")])


if sys.argv[1] == "stdio":
    stdio()
else:
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
