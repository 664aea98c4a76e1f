"""A filter of calls over HTTP: `filter_service.py FILE`. It writes its port to FILE, and what it is asked to FILE.asked,
a line each. FILE.mode says what it does: `pass`, `refuse`, `change`, `rubbish`, `both`, `error`, `hang`, `close`."""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FILE = sys.argv[1]


def mode():
    try:
        with open(FILE + ".mode") as file:
            return file.read().strip()
    except FileNotFoundError:
        return "pass"


def changed(asked):
    payload = json.loads(json.dumps(asked["payload"]).replace("secret", "public"))
    return {"type": "mutation", "modified": True, "payload": payload}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked["authorization"] = self.headers.get("Authorization")
        with open(FILE + ".asked", "a") as file:
            file.write(json.dumps(asked) + "\n")
        how = mode()
        if how == "hang":
            time.sleep(30)
        if how == "close":
            self.connection.close()
            return
        answers = {
            "pass": {"type": "validation", "valid": True},
            "refuse": {"valid": False, "messages": [{"message": "not that", "severity": "error"}]},
            "both": {"valid": True, "modified": True, "payload": {}},
            "other": {"modified": True, "payload": {"name": "die", "arguments": {}}},
            "list": {"modified": True, "payload": []},
        }
        answer = changed(asked) if how == "change" else answers.get(how, {})
        body = b"<html>" if how == "rubbish" else json.dumps(answer).encode()
        self.send_response(500 if how == "error" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 0))), Handler)
with open(FILE + ".part", "w") as file:
    file.write(str(server.server_port))
os.rename(FILE + ".part", FILE)
server.serve_forever()
