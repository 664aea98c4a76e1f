"""An MCP server that knows its callers by their tokens: `accounts.py stdio` with ACCOUNT_TOKEN, or `accounts.py http PORT`.

The file `accounts.json` has the name of each token; a token that it does not have is refused. Requests are noted in the
file `seen`, a line for each: the account, the headers, and the method.

Over HTTP it is an authorization server, too, which signs everybody in as the account in the file `browser`. Tokens last as
many seconds as the file `lifetime` says; each renewal has a new refresh token, the one before is taken no more, and that of
an account in the file `revoked` neither. What it gives is noted in the file `given`.
"""
import json
import os
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


lock = threading.Lock()
codes, access, refresh = {}, {}, {}


def read(name, default=""):
    try:
        with open(name) as file:
            return file.read().strip()
    except FileNotFoundError:
        return default


def note(name, value):
    with open(name, "a") as file:
        file.write(json.dumps(value) + "\n")


def account(token):
    return json.loads(read("accounts.json")).get(token) or access.get(token)


def grant(fields):
    """Answer of the token endpoint: a status, and what it says."""
    with lock:
        kind = fields.get("grant_type")
        if kind == "authorization_code":
            name = codes.pop(fields["code"], None)
        else:
            name = refresh.pop(fields.get("refresh_token"), None)
        if name is None or name in read("revoked").split():
            note("given", [kind, name, "invalid_grant"])
            return 400, {"error": "invalid_grant"}
        one, other = [kind + name + "-7c4n4ry-" + os.urandom(40).hex() for kind in ("access-", "refresh-")]
        access[one], refresh[other] = name, name
        note("given", [kind, name, fields.get("client_id")])
        return 200, {"access_token": one, "token_type": "Bearer", "refresh_token": other,
                     "expires_in": int(read("lifetime", "3600"))}


def answer(message, name, token):
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
        if "token" in (params.get("arguments") or {}):
            result = {"content": [{"type": "text", "text": "it is " + token}]}
    else:
        result = {}
    return {"result": result}


def respond(message, name, token):
    if "id" not in message:
        return None
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message, name, token)})


def stdio():
    name = account(os.environ.get("ACCOUNT_TOKEN", ""))
    if name is None:
        sys.exit("ACCOUNT_TOKEN is of nobody")
    for line in sys.stdin:
        out = respond(json.loads(line), name, os.environ["ACCOUNT_TOKEN"])
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

    def said(self, status, value):
        self.plain(status, json.dumps(value).encode(), [("Content-Type", "application/json")])

    def do_GET(self):
        base = "http://127.0.0.1:" + str(self.server.server_port)
        path, _, query = self.path.partition("?")
        if path.startswith("/.well-known/oauth-protected-resource"):
            self.said(200, {"resource": base + "/mcp", "authorization_servers": [base]})
        elif path == "/.well-known/oauth-authorization-server":
            self.said(200, {
                "issuer": base, "authorization_endpoint": base + "/authorize", "token_endpoint": base + "/token",
                "registration_endpoint": base + "/register", "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["none"]})
        elif path == "/authorize":
            query = dict(urllib.parse.parse_qsl(query))
            with lock:
                code = "code-" + str(len(codes)) + "-" + os.urandom(8).hex()
                codes[code] = read("browser")
            back = urllib.parse.urlencode({"code": code, "state": query["state"]})
            self.plain(302, b"", [("Location", query["redirect_uri"] + "?" + back)])
        else:
            self.plain(405)

    def do_DELETE(self):
        self.plain(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/token":
            self.said(*grant(dict(urllib.parse.parse_qsl(body.decode()))))
            return
        message = json.loads(body)
        if self.path == "/register":
            note("given", ["registration", None, message["client_name"]])
            self.said(201, {**message, "client_id": "client-" + str(read("given").count("registration"))})
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        name = account(token)
        note("seen", [name, dict(self.headers), message.get("method")])
        if name is None:
            self.plain(401, b"{}", [("WWW-Authenticate", "Bearer")])
            return
        out = respond(message, name, token)
        if out is None:
            self.plain(202)
        else:
            self.plain(200, out.encode(), [("Content-Type", "application/json")])


if sys.argv[1] == "stdio":
    stdio()
else:
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
