"""A server for the examples of docs/client-embedding.md: `add` adds, and `poem` has the client's model write."""

import json
import sys


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(number, words):
    send({"id": number, "result": {"resultType": "complete", "content": [{"type": "text", "text": words}]}})


def tool(name, *fields):
    properties = {field: {"type": "number"} for field in fields}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


KEEP = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
for line in sys.stdin:
    message = json.loads(line)
    number, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "server/discover":
        send({"id": number, "result": {**KEEP, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        send({"id": number, "result": {**KEEP, "tools": [tool("add", "a", "b"), tool("poem")]}})
    elif method == "tools/call" and params["name"] == "add":
        text(number, str(params["arguments"]["a"] + params["arguments"]["b"]))
    elif method == "tools/call" and "inputResponses" in params:
        text(number, params["inputResponses"]["poem"]["content"]["text"])
    elif method == "tools/call":
        words = {"role": "user", "content": {"type": "text", "text": "A poem, please."}}
        asked = {"method": "sampling/createMessage", "params": {"messages": [words], "maxTokens": 50}}
        send({"id": number, "result": {"resultType": "input_required", "inputRequests": {"poem": asked}}})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "there is no such method"}})
