"""A server on standard streams for many calls at once."""

import json
import os
import sys

waiting, kept, never, cancelled, released = [], [], {}, [0, 0], None
modern = False


def send(value):
    sys.stdout.write(json.dumps(value) + "\n")


def answer(number, result):
    if modern:
        result = {"resultType": "complete", **result}
    send({"jsonrpc": "2.0", "id": number, "result": result})


def text(number, words):
    answer(number, {"content": [{"type": "text", "text": words}]})


questions = None
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "server/discover":
        modern = True
        answer(number, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})
    elif method == "initialize":
        answer(number, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "child", "version": "1"}})
    elif method == "notifications/cancelled":
        cancelled[0 if message["params"]["requestId"] in never else 1] += 1
    elif method is None:
        questions[1] += 1
        if questions[1] == 1000:
            text(questions[0], "1000 answered")
    elif method == "tools/call":
        tool, at = message["params"]["name"], message["params"]["arguments"]["at"]
        if tool == "reversed":
            waiting.append((number, at))
            if len(waiting) == 1000:
                for number, at in reversed(waiting):
                    text(number, f"at {at}")
        elif tool == "kept":
            kept.append((number, at))
        elif tool == "never":
            never[number] = at
        elif tool == "count":
            text(number, f"{len(never)} never")
        elif tool == "release":
            text(number, f"{len(never)} never")
            for number, at in kept:
                text(number, f"at {at}")
        elif tool == "cancelled":
            text(number, f"{cancelled[0]} of never, {cancelled[1]} of others")
        elif tool == "questions":
            questions = [number, 0]
            for i in range(1000):
                send({"jsonrpc": "2.0", "id": f"q{i}", "method": "ping"})
        elif tool == "asks and never reads":
            while True:
                send({"jsonrpc": "2.0", "id": "q", "method": "ping"})
        elif tool == "environment":
            text(number, json.dumps({"group": os.getpgrp() == os.getpid(), "home": os.environ.get("HOME"), "place": os.getcwd()}))
    sys.stdout.flush()
