"""What the drivers of the Inspector's programs have in common."""

import base64
import json
import os
import subprocess


def say(outcome):
    print(json.dumps(outcome), flush=True)


def environment(home):
    # A home of its own: nothing of the person who runs this is read or written.
    return {**os.environ, "HOME": home, "MCP_INSPECTOR_SECRET_STORE": "memory"}


def write_config(plan, home):
    """A file that names the plan's server "server"."""
    if plan["transport"] == "stdio":
        # A file rather than a command on the line: a server's own options stay its own.
        command, *arguments = plan["command"]
        server = {"type": "stdio", "command": command, "args": arguments, "env": plan["env"], "cwd": plan["cwd"]}
    else:
        server = {"type": "streamable-http", "url": plan["url"], "headers": plan["headers"]}
    path = os.path.join(home, "mcp.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"mcpServers": {"server": server}}, file)
    return path


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


def called(result):
    """What a call was answered with."""
    texts = [part["text"] for part in result["content"] if part["type"] == "text"]
    return {
        "isError": bool(result.get("isError")),
        "text": "\n".join(texts),
        "structured": result.get("structuredContent"),
        "told": (result.get("_meta") or {}).get("io.owlclaw/error"),
    }


def contents(result):
    """What a resource was read as."""
    return [
        {
            "uri": part["uri"],
            "mimeType": part.get("mimeType"),
            "base64": part["blob"] if "blob" in part else base64.b64encode(part["text"].encode()).decode(),
        }
        for part in result["contents"]
    ]


def refusal(ran):
    """The error that it printed instead of a result: its message alone."""
    envelopes = [line for line in ran.stderr.splitlines() if line.startswith('{"error"')]
    if ran.returncode == 0 or not envelopes:
        raise RuntimeError(f"the Inspector ended with {ran.returncode} and said: {ran.stderr[-2000:]}")
    return {"error": {"code": None, "message": json.loads(envelopes[-1])["error"]["message"], "data": None}}
