"""A server of somebody else's, over standard streams, whose answers are as long as they are asked to be."""

import json
import sys

BYTES = {"type": "object", "properties": {"bytes": {"type": "integer"}}}
TOOLS = [
    {"name": "bulk", "description": "A long text.", "inputSchema": BYTES},
    {"name": "fail", "description": "A long error.", "inputSchema": BYTES},
]


def text(length):
    """Lines of 100 bytes, each with its number."""
    lines = (("line %d " % number).ljust(99, ".") + "\n" for number in range(length // 100 + 1))
    return "".join(lines)[:length]


def answer(message):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {"result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bulky", "version": "1"},
        }}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        long = text(params["arguments"].get("bytes", 10))
        if params["name"] == "fail":
            return {"error": {"code": -32000, "message": long}}
        return {"result": {"content": [{"type": "text", "text": long}]}}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "no such method"}}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        json.dump({"jsonrpc": "2.0", "id": request["id"], **answer(request)}, sys.stdout)
        sys.stdout.write("\n")
        sys.stdout.flush()
