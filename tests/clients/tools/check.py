"""Has LangChain and CrewAI call tools by the package `owlclaw_tools`: `check.py BINARY`. See run.sh."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "python" / "owlclaw_tools"))

from owlclaw_tools import MCPRegistry, MCPToolProvider  # noqa: E402

UPSTREAM = ROOT / "crates" / "gateway" / "tests" / "upstream.py"


def main(binary):
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "one").mkdir()
        settings = {
            "transport": "http",
            "http": {"port": 0},
            "ledger": {"path": "ledger.db"},
            "logging": {"format": "json"},
            "upstreams": {"one": {"command": sys.executable, "args": [str(UPSTREAM), "stdio", "one"]}},
            "governance": {"default": {"tools": {"deny": ["*_die"]}}},
        }
        (directory / "mcp-server.yaml").write_text(json.dumps({"mcp_server": settings}))
        server = subprocess.Popen([binary, "start"], cwd=directory, stderr=subprocess.PIPE, text=True)
        try:
            url = next(found.group(1) for line in server.stderr if (found := re.search(r'"url":"([^"]+)"', line)))
            check(MCPToolProvider(MCPRegistry(url)))
        finally:
            server.terminate()
            server.wait(30)
        exported = subprocess.run(
            [binary, "ledger", "export", "--format", "audit"], cwd=directory, capture_output=True, text=True, check=True
        )
        calls = [json.loads(line) for line in exported.stdout.splitlines()]
        told = [(it["server"], it["tool"], it["outcome"]) for it in calls]
        assert told.count(("one", "echo", "succeeded")) == 2, told
        assert any(it["tool"] in ("die", "mcp_one_die") and it["outcome"] == "denied" for it in calls), told
        print(f"{len(calls)} calls are on record")


def check(provider):
    chained = {it.name: it for it in provider.langchain(["one"])}
    echo = chained["mcp_one_echo"]
    assert echo.args["text"] == {"type": "string"}, echo.args
    assert "hello" in echo.invoke({"text": "hello"})
    # What an agent does with a model's call.
    message = {"type": "tool_call", "id": "1", "name": "mcp_one_fail", "args": {}}
    answer = chained["mcp_one_fail"].invoke(message)
    assert answer.status == "error" and "it failed" in answer.content, answer
    assert "permission is missing" in chained["mcp_one_die"].invoke({})
    from langchain_core.utils.function_calling import convert_to_openai_tool

    ours = next(it for it in provider.openai(["one"]) if it["function"]["name"] == "mcp_one_echo")
    theirs = convert_to_openai_tool(echo)
    assert theirs["function"]["parameters"]["properties"] == ours["function"]["parameters"]["properties"], theirs
    print("LangChain: ok")

    crew = {it.name: it for it in provider.crewai(["one"])}
    echo = crew["mcp_one_echo"]
    assert "hello" in echo.run(text="hello")
    assert "it failed" in crew["mcp_one_fail"].run()
    schema = echo.args_schema.model_json_schema()
    assert schema["properties"]["text"] == {"type": "string"}, schema
    print("CrewAI: ok")


main(sys.argv[1])
