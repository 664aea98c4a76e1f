"""An MCP server that knows its callers by their tokens: `accounts.py stdio` with ACCOUNT_TOKEN, or `accounts.py http PORT`.

The file `accounts.json` has the name of each token; a token that it does not have is refused. Requests are noted in the
file `seen`, a line for each: the account, the headers, and the method.

Over HTTP it is an authorization server, too, which signs everybody in as the account in the file `browser`. Tokens last as
many seconds as the file `lifetime` says, refresh tokens as many as the file `patience` says; each renewal has a new refresh
token, the one before is taken no more, and that of an account in the file `revoked` neither. One that is shown again takes all
tokens of its account back (RFC 9700, section 4.14.2). What it gives is noted in the file `given`, with the time. Its answers
come so many seconds late as the file `late` says, and its clock is ahead by as many as the file `ahead` says. Paths in the file
`outage` are out of order: each has a status, or 0 for a connection that is closed, headers, and a text.

It knows callers of the gateway by the file `callers.json`, from a token to a name: it answers questions about such tokens
(RFC 7662), and exchanges them (RFC 8693) for a token of the account `NAME.exchanged`, or for an assertion (ID-JAG) that it takes
for one of the account `NAME.asserted`.
"""
import base64
import json
import os
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


lock = threading.Lock()
codes, access, refresh, assertions, spent = {}, {}, {}, {}, {}
TYPES = "urn:ietf:params:oauth:token-type:"
GRANTS = "urn:ietf:params:oauth:grant-type:"


def read(name, default=""):
    try:
        with open(name) as file:
            return file.read().strip()
    except FileNotFoundError:
        return default


def note(name, value):
    with open(name, "a") as file:
        file.write(json.dumps(value) + "\n")


def clock():
    return time.time() + float(read("ahead", "0"))


def account(token):
    name, ends_at = access.get(token, (None, 0))
    return json.loads(read("accounts.json", "{}")).get(token) or (name if clock() < ends_at else None)


def exchange(fields, authorization):
    """Answer to an exchange of tokens, or to an assertion."""
    expected = "Basic " + base64.b64encode(b"gateway:7c4n4ry-exchange").decode()
    if authorization != expected:
        return 401, {"error": "invalid_client"}
    kind = fields["grant_type"].removeprefix(GRANTS)
    given = {name: fields.get(name) for name in ("audience", "resource", "scope", "subject_token_type")}
    with lock:
        if kind == "jwt-bearer":
            name, end, issued = assertions.pop(fields["assertion"], None), ".asserted", None
        else:
            name = json.loads(read("callers.json")).get(fields["subject_token"])
            end, issued = ".exchanged", fields["requested_token_type"].removeprefix(TYPES)
        if name is None or name in read("revoked").split():
            note("given", [kind, name, "invalid_grant"])
            return 400, {"error": "invalid_grant"}
        note("given", [kind, name, given])
        if read("echo"):
            return 200, {"access_token": fields["subject_token"], "issued_token_type": TYPES + "access_token",
                         "token_type": "Bearer"}
        token = kind + "-" + name + "-7c4n4ry-" + os.urandom(40).hex()
        if issued == "id-jag":
            assertions[token] = name
            return 200, {"access_token": token, "issued_token_type": TYPES + issued, "token_type": "N_A"}
        lifetime = int(read("lifetime", "3600"))
        access[token] = name + end, clock() + lifetime
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": lifetime}
        return 200, {**answer, **({"issued_token_type": TYPES + issued} if issued else {})}


def introspect(fields):
    """Answer to a question about a caller's token."""
    name = json.loads(read("callers.json")).get(fields["token"])
    if name is None:
        return 200, {"active": False}
    return 200, {"active": True, "sub": name, "aud": read("audience"), "exp": int(time.time()) + 600}


def grant(fields):
    """Answer of the token endpoint: a status, and what it says."""
    with lock:
        kind = fields.get("grant_type")
        if kind == "authorization_code":
            name = codes.pop(fields["code"], None)
        else:
            shown = fields.get("refresh_token")
            name, ends_at = refresh.pop(shown, (None, 0))
            if shown in spent:
                for tokens in (access, refresh):
                    for token in [token for token, it in tokens.items() if it[0] == spent[shown]]:
                        del tokens[token]
                note("given", ["reuse", spent[shown]])
            name = name if clock() < ends_at else None
            spent[shown] = name
        if name is None or name in read("revoked").split():
            note("given", [kind, name, "invalid_grant"])
            return 400, {"error": "invalid_grant"}
        one, other = [kind + name + "-7c4n4ry-" + os.urandom(40).hex() for kind in ("access-", "refresh-")]
        lifetime = int(read("lifetime", "3600"))
        access[one] = name, clock() + lifetime
        refresh[other] = name, clock() + int(read("patience", "31536000"))
        note("given", [kind, name, fields.get("client_id"), clock()])
        return 200, {"access_token": one, "token_type": "Bearer", "refresh_token": other, "expires_in": lifetime}


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
    disable_nagle_algorithm = True

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

    def is_out(self):
        """Answers for a path that is out of order."""
        for path, (status, headers, text) in json.loads(read("outage", "{}")).items():
            if self.path.startswith(path):
                note("given", ["outage", path])
                if status == 0:
                    self.close_connection = True
                else:
                    self.plain(status, text.encode(), list(headers.items()))
                return True
        return False

    def do_GET(self):
        if self.is_out():
            return
        base = "http://127.0.0.1:" + str(self.server.server_port)
        path, _, query = self.path.partition("?")
        if path.startswith("/.well-known/oauth-protected-resource"):
            self.said(200, {"resource": base + "/mcp", "authorization_servers": [base]})
        elif path == "/.well-known/oauth-authorization-server":
            self.said(200, {
                "issuer": base, "authorization_endpoint": base + "/authorize", "token_endpoint": base + "/token",
                "registration_endpoint": base + "/register", "revocation_endpoint": base + "/revoke",
                "response_types_supported": ["code"],
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
        if self.is_out():
            return
        if self.path in ("/token", "/introspect"):
            fields = dict(urllib.parse.parse_qsl(body.decode()))
            if self.path == "/introspect":
                self.said(*introspect(fields))
            elif fields.get("grant_type", "").startswith(GRANTS):
                self.said(*exchange(fields, self.headers.get("Authorization")))
            else:
                answer = grant(fields)
                time.sleep(float(read("late", "0")))
                self.said(*answer)
            return
        if self.path == "/revoke":
            fields = dict(urllib.parse.parse_qsl(body.decode()))
            with lock:
                for tokens in (access, refresh):
                    tokens.pop(fields["token"], None)
            note("given", ["revocation", fields["client_id"], fields["token_type_hint"]])
            self.plain(200)
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


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


if sys.argv[1] == "stdio":
    stdio()
else:
    Server(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
