"""Starts each of FastMCP's example servers behind the server, with the import changed, and uses what it offers.

``check.py BINARY EXAMPLES PYTHON``. Called by run.sh. docs/handlers.md says what differs from FastMCP.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

SURGE = {f"SURGE_{name}": "+15550100" for name in ("API_KEY", "ACCOUNT_ID", "MY_PHONE_NUMBER", "MY_FIRST_NAME", "MY_LAST_NAME")}

# Each example with what is asked of it, and a part of the answer. `tools` is a list of the tools' names.
EXAMPLES = {
    "complex_inputs.py": [
        ("call", "name_shrimp", {"tank": {"shrimp": [{"name": "Al"}]}, "extra_names": ["Bo"]}, '["Al","Bo"]'),
        ("call", "name_shrimp", {"tank": {"shrimp": [{"name": "longer than ten"}]}, "extra_names": []}, "name"),
    ],
    "config_server.py": [("call", "echo_message", {"message": "hi"}, "hi"), ("call", "get_status", {}, "server_name")],
    "desktop.py": [
        ("call", "add", {"a": 1, "b": 2}, "3"),
        ("read", "greeting://Ann", None, "Hello, Ann!"),
        ("read", "dir://desktop", None, "note.txt"),
    ],
    "echo.py": [
        ("call", "echo_tool", {"text": "hi"}, "hi"),
        ("read", "echo://static", None, "Echo!"),
        ("read", "echo://abc", None, "Echo: abc"),
        ("prompt", "echo", {"text": "say"}, "say"),
    ],
    "fastmcp_config/server.py": [("call", "add", {"a": 1, "b": 2}, "3"), ("read", "config://example", None, "")],
    "fastmcp_config_demo/server.py": [("tools", ["analyze_colors", "take_screenshot"], None, "")],
    "get_file.py:create_server()": [("call", "get_test_file_from_server", {"path": "note.txt"}, "a note")],
    "mount_example.py": [
        ("call", "check_app_status", {}, "running"),
        ("call", "weather_get_weather_forecast", {"location": "Rome"}, "Sunny skies for Rome"),
        ("read", "weather://weather/forecast", None, '"humidity":45'),
        ("read", "news://news/headlines", None, "Reuters"),
    ],
    "screenshot.py": [("tools", ["take_screenshot"], None, "")],
    "serializer.py": [("call", "get_example_data", {}, '"value":123')],
    "simple_echo.py": [("call", "echo", {"text": "hi"}, "hi")],
    "testing_demo/server.py": [
        ("call", "add", {"a": 1, "b": 2}, "3"),
        ("call", "greet", {"name": "Ann"}, "Hello, Ann!"),
        ("call", "async_multiply", {"x": 2, "y": 3}, "6"),
        ("read", "demo://info", None, "FastMCP"),
        ("read", "demo://greeting/Ann", None, "Ann"),
        ("prompt", "hello", {"name": "Ann"}, "Ann"),
        ("prompt", "explain", {"topic": "tea"}, "tea"),
    ],
    "text_me.py": [("tools", ["textme"], None, "")],
    "tool_result_echo.py": [("call", "echo", {"text": "hi"}, "Echoed: hi")],
}

CONFIGURATION = """
mcp_server:
  app: {app}
  python: {python}
  ledger: {{path: ./ledger.db}}
  governance:
    default:
      tools: {{allow: ["*"]}}
      resources: {{allow: ["*"]}}
      prompts: {{allow: ["*"]}}
"""


def shown(result):
    return json.dumps(result.model_dump(mode="json", by_alias=True, exclude_none=True)).replace('\\"', '"')


async def use(binary, home, steps, mode, log):
    environment = {"MCP_CLIENT_ID": "tester", "PATH": os.environ["PATH"], "HOME": str(home), **SURGE}
    command = ["start", "--transport", "stdio", "--config", str(home / "mcp-server.yaml")]
    server = stdio_client(StdioServerParameters(command=binary, args=command, env=environment, cwd=str(home)), log)
    wrong = []
    async with Client(server, mode=mode, read_timeout_seconds=60) as client:
        for what, subject, arguments, expected in steps:
            try:
                if what == "call":
                    seen = shown(await client.call_tool(subject, arguments))
                elif what == "read":
                    seen = shown(await client.read_resource(subject))
                elif what == "prompt":
                    seen = shown(await client.get_prompt(subject, arguments))
                else:
                    names = sorted(tool.name for tool in (await client.list_tools()).tools)
                    seen = "" if names == subject else f"there are {names}"
                    expected = seen if names == subject else "the tools that it has"
            except MCPError as error:
                seen = f"{error.code} {error.message} {json.dumps(error.data)}"
            if expected not in seen:
                wrong.append(f"{what} {subject}: {expected!r} is not in {seen[:400]}")
    return wrong


def main():
    binary, examples, python = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    failed = 0
    for example, steps in EXAMPLES.items():
        path, _, attribute = example.partition(":")
        for mode in ("legacy", "auto"):
            with tempfile.TemporaryDirectory(prefix="owlclaw-fastmcp-") as name:
                home = Path(name)
                (home / "Desktop").mkdir()
                (home / "capabilities").mkdir()
                (home / "Desktop" / "note.txt").write_text("a note")
                (home / "note.txt").write_text("a note")
                text = (examples / path).read_text(encoding="utf-8")
                text = re.sub(r"from fastmcp(\.[\w.]+)? import", "from owlclaw_worker import", text)
                (home / "server.py").write_text(text, encoding="utf-8")
                app = "server.py" + (":" + attribute if attribute else "")
                (home / "mcp-server.yaml").write_text(CONFIGURATION.format(app=app, python=python))
                try:
                    with open(home / "server.log", "w") as log:
                        wrong = asyncio.run(use(binary, home, steps, mode, log))
                except Exception as error:
                    wrong = [f"it does not run: {error!r}"[:500], (home / "server.log").read_text()[-1000:]]
            print(f"{example:<32} {mode:<7} {'ok' if not wrong else 'FAILED'}")
            for one in wrong:
                print("    " + one)
            failed += bool(wrong)
    print(f"{len(EXAMPLES)} examples, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
