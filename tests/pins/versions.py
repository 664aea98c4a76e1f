#!/usr/bin/env python3
"""Starts published versions of packaged servers one after the other behind the gateway, and writes which pins hold.

    tests/pins/versions.py BINARY DIRECTORY

Packages are installed below DIRECTORY, which may be kept for the next time. Each step is a row of the table in docs/gateway.md:
what the pins of the version before say about the next one. What is held is approved before the next step.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile

BINARY, DIRECTORY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SERVERS = [
    ("@modelcontextprotocol/server-everything", "dist/index.js", ["2025.8.18", "2025.12.18", "2026.1.26", "2026.8.31"], []),
    ("@modelcontextprotocol/server-filesystem", "dist/index.js", ["2025.8.18", "2025.11.18", "2026.1.14", "2026.8.31"], ["/tmp"]),
    ("@modelcontextprotocol/server-memory", "dist/index.js", ["2025.8.18", "2025.11.25", "2026.1.26", "2026.8.31"], []),
    ("@modelcontextprotocol/server-sequential-thinking", "dist/index.js", ["2025.7.1", "2025.11.25", "2025.12.18", "2026.8.31"], []),
    ("@playwright/mcp", "cli.js", ["0.0.36", "0.0.45", "0.0.56", "0.0.80"], ["--headless"]),
    ("@upstash/context7-mcp", "dist/index.js", ["1.0.17", "1.0.29", "2.0.0", "2.1.0"], []),
]


def published(package):
    listed = subprocess.run(["npm", "view", package, "versions", "--json"], capture_output=True, check=True)
    return [it for it in json.loads(listed.stdout) if "-" not in it]


def nearest(package, wanted):
    """Those of the versions that were published, the last one in place of one that was not."""
    there = published(package)
    found = [it if it in there else None for it in wanted]
    missing = found.count(None)
    rest = [it for it in there if it not in found][-missing:] if missing else []
    return sorted({it for it in found + rest if it}, key=there.index)


def installed(package, version):
    place = os.path.join(DIRECTORY, package.replace("/", "+") + "@" + version)
    if not os.path.exists(os.path.join(place, "done")):
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, "package.json"), "w") as file:
            json.dump({"private": True}, file)
        subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", f"{package}@{version}"],
                       cwd=place, check=True, stdout=subprocess.DEVNULL)
        open(os.path.join(place, "done"), "w").close()
    return os.path.join(place, "node_modules", package)


def seen(config):
    """Has the gateway list everything once, as a client sees it."""
    server = subprocess.Popen([BINARY, "start", "--config", config], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)

    def ask(number, method, params):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        server.stdin.flush()
        for line in server.stdout:
            message = json.loads(line)
            if message.get("id") == number:
                return message.get("result", {})

    ask(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "v", "version": "1"}})
    counts = []
    for number, kind in enumerate(["tools", "prompts", "resources"], 2):
        counts.append(len((ask(number, kind + "/list", {}) or {}).get(kind, [])))
    server.stdin.close()
    server.wait(30)
    return counts


def command(config, *words):
    return subprocess.run([BINARY, "upstream", *words, "--config", config], capture_output=True, text=True)


def main():
    print("| Server | From | To | Items | Held | What changed | Severity |")
    print("|---|---|---|---|---|---|---|")
    for package, script, versions, arguments in SERVERS:
        with tempfile.TemporaryDirectory() as site:
            config = os.path.join(site, "mcp-server.yaml")
            before, known = None, set()
            for version in nearest(package, versions):
                path = os.path.join(installed(package, version), script)
                settings = {"upstreams": {"it": {"command": "node", "args": [path, *arguments], "accept_changes": []}},
                            "gateway": {"first_start_seconds": 60}, "ledger": {"path": os.path.join(site, "ledger.db")}}
                with open(config, "w") as file:
                    json.dump({"mcp_server": settings}, file)
                # The second look is at lists that are read anew.
                seen(config)
                command(config, "recheck", "it")
                seen(config)
                pins = json.loads(command(config, "pins", "it", "--format", "json").stdout or "[]")
                there = [it for it in pins if not it["pin"].get("is_gone")]
                held = json.loads(command(config, "diff", "it", "--format", "json").stdout or "[]")
                kinds = collections.Counter(kind for it in held for kind in it["changes"])
                names = {(it["kind"], it["name"]) for it in there}
                gone = len(known - names)
                known = names
                what = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())) or "nothing"
                if gone:
                    what += f"; {gone} gone"
                severity = max((it["severity"] for it in held), key=["low", "medium", "high"].index, default="-")
                if before:
                    print(f"| {package} | {before} | {version} | {len(there)} | {len(held)} | {what} | {severity} |", flush=True)
                command(config, "approve", "it", "--all", "--by", "script", "--reason", "next")
                before = version


if __name__ == "__main__":
    main()
