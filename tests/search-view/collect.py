"""Collects the tools of packaged MCP servers, as a corpus for the measurement of searches.

    python3 tests/search-view/collect.py DIRECTORY

installs the packages into DIRECTORY and writes DIRECTORY/tools.json. No description is in this repository: they are
their authors'. The servers are started without credentials and are asked for their lists alone.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

# Name for the corpus: package, version, program, its arguments.
SERVERS = {
    "gitlab": ("@zereight/mcp-gitlab", "2.1.64", "mcp-gitlab"),
    "playwright": ("@playwright/mcp", "0.0.83", "playwright-mcp"),
    "mongodb": ("mongodb-mcp-server", "3.0.4", "mongodb-mcp-server"),
    "notion": ("@notionhq/notion-mcp-server", "2.5.2", "notion-mcp-server"),
    "chrome": ("chrome-devtools-mcp", "1.11.0", "chrome-devtools-mcp"),
    "github": ("@modelcontextprotocol/server-github", "2025.4.8", "mcp-server-github"),
    "filesystem": ("@modelcontextprotocol/server-filesystem", "2026.8.31", "mcp-server-filesystem", "/tmp"),
    "memory": ("@modelcontextprotocol/server-memory", "2026.8.31", "mcp-server-memory"),
    "digitalocean": ("@digitalocean/mcp", "1.0.70", "mcp", "--services",
                     "apps,databases,droplets,networking,spaces,doks,accounts,insights,marketplace"),
    "ms365": ("@softeria/ms-365-mcp-server", "0.155.0", "ms-365-mcp-server", "--org-mode"),
    "shortcut": ("@shortcut/mcp", "0.25.0", "mcp-server-shortcut"),
    "circleci": ("@circleci/mcp-server-circleci", "0.20.0", "mcp-server-circleci"),
    "postman": ("@postman/postman-mcp-server", "2.13.0", "postman-mcp-server", "--full"),
    "kubernetes": ("mcp-server-kubernetes", "4.1.7", "mcp-server-kubernetes"),
}
NONE = ("GITLAB_PERSONAL_ACCESS_TOKEN", "GITHUB_PERSONAL_ACCESS_TOKEN", "SHORTCUT_API_TOKEN", "CIRCLECI_TOKEN",
        "POSTMAN_API_KEY", "NOTION_TOKEN", "DIGITALOCEAN_API_TOKEN")
SWITCHES = {"USE_PIPELINE": "true", "USE_MILESTONE": "true", "USE_GITLAB_WIKI": "true",
            "MDB_MCP_CONNECTION_STRING": "mongodb://127.0.0.1:1/none"}
SECONDS = 60


def listed(command):
    """All pages of the list of tools of a program."""
    environment = {**os.environ, **dict.fromkeys(NONE, "none"), **SWITCHES}
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env=environment, text=True)
    watch = threading.Timer(SECONDS, program.kill)
    watch.start()
    number = 0

    def send(message):
        program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        program.stdin.flush()

    def ask(method, params):
        nonlocal number
        number += 1
        send({"id": number, "method": method, "params": params})
        for line in program.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if message.get("id") == number:
                return message["result"]
        raise EOFError(f"{command[0]} has ended")

    try:
        ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                           "clientInfo": {"name": "collect", "version": "1"}})
        send({"method": "notifications/initialized"})
        tools, cursor = [], None
        while True:
            page = ask("tools/list", {"cursor": cursor} if cursor else {})
            tools += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                return tools
    finally:
        watch.cancel()
        program.kill()


def main():
    directory = Path(sys.argv[1]).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    packages = [f"{package}@{version}" for package, version, *_ in SERVERS.values()]
    subprocess.run(["npm", "install", "--prefix", str(directory), "--ignore-scripts", "--no-audit", "--no-fund",
                    *packages], check=True)
    corpus = {}
    for name, (_, _, program, *arguments) in SERVERS.items():
        corpus[name] = listed([str(directory / "node_modules" / ".bin" / program), *arguments])
        print(f"{name}: {len(corpus[name])}")
    (directory / "tools.json").write_text(json.dumps(corpus))
    print(f"{sum(map(len, corpus.values()))} tools in {directory / 'tools.json'}")


main()
