"""A server on standard streams that misbehaves as its argument says."""

import json
import os
import signal
import sys
import time

how = sys.argv[1]
out = sys.stdout


def send(value):
    out.write(json.dumps(value) + "\n")
    out.flush()


def forever():
    while True:
        time.sleep(60)


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def initialized(version="2025-11-25", **more):
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "h", "version": "1"}, **more}


task = {"taskId": "a", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": None, "pollIntervalMs": 20}

if how == "ends_at_once":
    sys.stderr.write("cannot find the database\n")
    sys.exit(3)
if how == "is_killed":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "closes_output":
    sys.stderr.write("no more output\n")
    sys.stderr.flush()
    os.close(1)
    forever()
if how == "never_reads":
    forever()
if how == "floods_rubbish":
    while True:
        out.write("Starting up...\n")
if how == "one_endless_line":
    while True:
        out.write("x" * 65536)
if how == "floods_stderr":
    while True:
        sys.stderr.write("e" * 65536)
if how == "binary":
    while True:
        out.buffer.write(os.urandom(4096) + b"\n")
prints = 9_000 if how == "prints_with_each_call" else 0
if how == "says_hello_first":
    out.write("Welcome to the server!\n\n")
    out.flush()

for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")

    def answer(result):
        send({"jsonrpc": "2.0", "id": number, "result": result})

    def fail(code, words, **more):
        send({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": words, **more}})

    if how == "silent":
        continue
    if how == "ends_always" or (how == "ends_at_the_probe" and method == "server/discover"):
        sys.stderr.write(f"expected initialize, but got {method}\n")
        sys.exit(1)
    if method == "server/discover":
        if how == "ends_after_the_probe":
            fail(-32600, "expected initialize")
            sys.exit(1)
        if how == "closes_at_the_probe":
            os.close(1)
            continue
        if how == "silent_probe":
            continue
        if how == "probe_null_id":
            send({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "?"}})
            continue
        if how == "probe_odd_result":
            answer({"hello": 1})
            continue
        if how == "probe_array":
            answer([1])
            continue
        if how == "unknown_versions":
            answer({"resultType": "complete", "supportedVersions": ["2031-01-01"], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"})
            continue
        if how == "no_versions":
            answer({"resultType": "complete", "supportedVersions": [], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"})
            continue
        if how.startswith("modern_"):
            answer({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}, "ttlMs": 0, "cacheScope": "private"})
            continue
        if how == "unsupported_forever":
            fail(-32022, "no", data={"supported": ["2026-07-28"], "requested": "2026-07-28"})
            continue
        fail(-32601, "method not found")
    elif method == "initialize":
        if how == "refuses_initialize":
            fail(-32603, "out of order")
        elif how == "initialize_array":
            answer([])
        elif how == "initialize_no_version":
            answer({"capabilities": {}})
        elif how == "task_never":
            tasks = {"requests": {"tools": {"call": {}}}, "cancel": {}}
            answer(initialized(capabilities={"tools": {}, "tasks": tasks}))
        elif how == "version_far_future":
            answer(initialized("2099-01-01"))
        elif how == "version_old":
            answer(initialized("1.0"))
        elif how == "version_modern":
            answer(initialized("2026-07-28"))
        elif how == "refuses_levels":
            answer(initialized(capabilities={"tools": {}, "logging": {}}))
        elif how == "string_ids":
            send({"jsonrpc": "2.0", "id": str(number), "result": initialized()})
        else:
            answer(initialized())
    elif method == "tools/list":
        if how == "pages_without_end":
            answer({"tools": [], "nextCursor": str(number)})
        elif how == "page_to_itself":
            answer({"tools": [{"name": f"t{number}", "inputSchema": {"type": "object"}}], "nextCursor": "again"})
        elif how == "empty_cursors":
            answer({"tools": [{"name": "a", "inputSchema": {"type": "object"}}, {"name": ""}], "nextCursor": ""})
        elif how == "behind_an_empty_cursor":
            second = message.get("params", {}).get("cursor") == ""
            answer({"tools": [{"name": "b" if second else "a", "inputSchema": {"type": "object"}}], **({} if second else {"nextCursor": ""})})
        elif how == "items_without_end":
            answer({"tools": [{"name": f"t{number}-{i}", "inputSchema": {"type": "object"}} for i in range(2000)], "nextCursor": str(number)})
        elif how == "bytes_without_end":
            tools = [{"name": f"t{number}-{i}", "description": "x" * 90_000, "inputSchema": {"type": "object"}} for i in range(10)]
            answer({"tools": tools, "nextCursor": str(number)})
        elif how == "tools_no_list":
            answer({"tools": "none"})
        elif how == "tools_unusable":
            schemas = {"": {"type": "object"}, "list": {"type": "array"}, "types": {"type": ["object"]}, "none": {}, "some": {"type": "object"}}
            answer({"tools": [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]})
        else:
            answer({"tools": [], **({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if how.startswith("modern_") else {})})
    elif method == "logging/setLevel":
        fail(-32601, "method not found")
    elif method == "tools/call":
        out.write("print\n" * prints)
        if how in ("answers_other_ids", "wrong_id_flood"):
            for i in range(3000 if how == "wrong_id_flood" else 1):
                send({"jsonrpc": "2.0", "id": 900000 + i, "result": text("no")})
        elif how == "dies_in_call":
            sys.stderr.write("Traceback: boom\n")
            sys.stderr.flush()
            os._exit(7)
        elif how == "answers_twice":
            answer(text("one"))
            answer(text("two"))
        elif how == "deep":
            out.write('{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (number, "[" * 100000 + "]" * 100000))
            out.flush()
        elif how == "huge":
            answer(text("x" * (3 << 20)))
        elif how == "result_and_error":
            send({"jsonrpc": "2.0", "id": number, "result": text("a"), "error": {"code": 1, "message": "b"}})
        elif how == "no_outcome":
            send({"jsonrpc": "2.0", "id": number})
        elif how == "two_ids":
            out.write('{"jsonrpc":"2.0","id":%d,"id":77,"result":{"content":[]}}\n' % number)
            out.flush()
        elif how == "no_content":
            answer({})
        elif how == "result_null":
            answer(None)
        elif how == "error_is_text":
            send({"jsonrpc": "2.0", "id": number, "error": "bad"})
        elif how == "error_code_is_text":
            send({"jsonrpc": "2.0", "id": number, "error": {"code": "x", "message": "bad"}})
        elif how == "error_code_is_long":
            fail(-32000000000000, "beyond")
        elif how == "no_number":
            out.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[],"x":NaN}}\n' % number)
            out.flush()
        elif how == "asks_with_text":
            send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": "x"})
            reply = json.loads(sys.stdin.readline())
            answer(text(json.dumps(reply)))
        elif how == "no_version_member":
            send({"id": number, "result": text("a")})
        elif how == "progress_without_end":
            token = message["params"].get("_meta", {}).get("progressToken")
            i = 0
            while True:
                i += 1
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": i}})
        elif how == "logs_without_end":
            while True:
                send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        elif how == "asks_without_end":
            i = 0
            while True:
                i += 1
                send({"jsonrpc": "2.0", "id": f"q{i}", "method": "roots/list"})
        elif how == "asks_undeclared":
            send({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
            reply = json.loads(sys.stdin.readline())
            answer(text(json.dumps(reply)))
        elif how == "asks_nonsense":
            send({"jsonrpc": "2.0", "id": "q", "method": "please/destroy"})
            reply = json.loads(sys.stdin.readline())
            answer(text(json.dumps(reply)))
        elif how == "batch_of_rubbish":
            out.write("[1,2,3]\n")
            out.flush()
        elif how == "modern_rounds_without_end":
            answer({"resultType": "input_required", "requestState": "s"})
        elif how == "modern_asks_nothing":
            answer({"resultType": "input_required"})
        elif how == "asks_with_a_url":
            params = {"mode": "url", "url": "https://a.example/", "message": "m", "elicitationId": "e"}
            send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params})
            reply = json.loads(sys.stdin.readline())
            answer(text(json.dumps(reply)))
        elif how in ("modern_task_never", "modern_task_cancelled"):
            answer({"resultType": "task", **task})
        elif how == "task_never":
            answer({"task": {**task, "ttl": None, "pollInterval": 50}})
        elif how == "modern_undeclared":
            answer({"resultType": "input_required", "inputRequests": {"k": {"method": "roots/list"}}})
        elif how == "modern_odd_type":
            answer({"resultType": "x" * 10000})
        elif how == "modern_asks_directly":
            send({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
            reply = json.loads(sys.stdin.readline())
            answer({"resultType": "complete", **text(json.dumps(reply))})
        elif how == "modern_task_nonsense":
            answer({"resultType": "task", "taskId": 7})
        elif how == "modern_task_of_others":
            answer({"resultType": "task", "taskId": "a", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": None, "pollIntervalMs": 0})
        elif how == "waits":
            continue
        elif how.startswith("modern_"):
            answer({"resultType": "complete", **text("ok")})
        else:
            answer(text("ok"))
    elif method == "tasks/get" and how == "modern_task_never":
        answer({"resultType": "complete", **task})
    elif method == "tasks/get" and how == "modern_task_cancelled":
        answer({"resultType": "complete", **task, "status": "cancelled", "statusMessage": "the disk\u001b is full"})
    elif method == "tasks/cancel":
        sys.stderr.write(f"asked to cancel {message['params']['taskId']}\n")
        sys.stderr.flush()
        answer({**task, "status": "cancelled", "ttl": None, **({"resultType": "complete"} if how.startswith("modern_") else {})})
    elif method == "tasks/get":
        answer({"resultType": "complete", "taskId": "b", "status": "completed", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": None, "result": text("theirs")})
    elif method == "ping":
        answer({})

if how == "ignores_the_end":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    forever()
