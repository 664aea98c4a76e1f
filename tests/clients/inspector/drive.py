"""Carries out a plan of steps with the MCP Inspector's command line, one JSON line per outcome.

``drive.py PLAN.json``; see ../plan.md. ``INSPECTOR`` names the Inspector's launcher.

Every step is a run of its own: a new connection and, over stdio, a new server.
The Inspector keeps neither the code nor the data of an error, so outcomes have
only its message.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile


def say(outcome):
    print(json.dumps(outcome), flush=True)


def options(step):
    match step["do"]:
        case "tools":
            return ["--method", "tools/list"]
        case "resources":
            return ["--method", "resources/list"]
        case "read":
            return ["--method", "resources/read", "--uri", step["uri"]]
        case "call":
            arguments = json.dumps(step["arguments"])
            return ["--method", "tools/call", "--tool-name", step["tool"], "--tool-args-json", arguments]
    raise ValueError(f"unknown step {step}")


def target(plan, home):
    if plan["transport"] == "stdio":
        # A session file rather than a command on the line: a server's own options stay its own.
        command, *arguments = plan["command"]
        server = {"type": "stdio", "command": command, "args": arguments, "env": plan["env"], "cwd": plan["cwd"]}
    else:
        server = {"type": "streamable-http", "url": plan["url"], "headers": plan["headers"]}
    path = os.path.join(home, "mcp.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"mcpServers": {"server": server}}, file)
    return ["--config", path, "--server", "server"]


def run(command, environment, timeout):
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env=environment,
        timeout=timeout,
    )


def outcome_of(step, ran):
    if ran.stdout.strip():
        result = json.loads(ran.stdout)["result"]
        match step["do"]:
            case "tools":
                return {"tools": result["tools"]}
            case "resources":
                return {"resources": result["resources"]}
            case "read":
                return {
                    "contents": [
                        {
                            "uri": part["uri"],
                            "mimeType": part.get("mimeType"),
                            "base64": part["blob"]
                            if "blob" in part
                            else base64.b64encode(part["text"].encode()).decode(),
                        }
                        for part in result["contents"]
                    ]
                }
            case "call":
                texts = [part["text"] for part in result["content"] if part["type"] == "text"]
                return {
                    "isError": bool(result.get("isError")),
                    "text": "\n".join(texts),
                    "structured": result.get("structuredContent"),
                    "progress": [],
                }
    envelopes = [line for line in ran.stderr.splitlines() if line.startswith('{"error"')]
    if ran.returncode == 0 or not envelopes:
        raise RuntimeError(f"the Inspector ended with {ran.returncode} and said: {ran.stderr[-2000:]}")
    return {"error": {"code": None, "message": json.loads(envelopes[-1])["error"]["message"], "data": None}}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    with tempfile.TemporaryDirectory() as home:
        inspector = ["node", os.environ["INSPECTOR"], "--cli", *target(plan, home)]
        inspector += ["--protocol-era", plan["era"], "--format", "json", "-q", "--stored-auth-only"]
        # A home of its own: nothing of the person who runs this is read or written.
        environment = {**os.environ, "HOME": home, "MCP_INSPECTOR_SECRET_STORE": "memory"}
        handshake = run(inspector + ["--method", "initialize"], environment, plan["timeout"])
        say({"connected": json.loads(handshake.stdout)["result"]["protocolVersion"]})
        for step in plan["steps"]:
            say({"id": step["id"], **outcome_of(step, run(inspector + options(step), environment, plan["timeout"]))})
    say({"closed": True})


if __name__ == "__main__":
    main()
