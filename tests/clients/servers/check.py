"""Tries our client, `owlclaw-mcp client`, with servers that others have written, over each of their transports.

Called by run.sh, which installs the servers. Each row is one server over one transport in one revision; its
checks are commands of the client, each in a process of its own. Prints a table of what was seen.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECONDS = 60
MODERN, LEGACY = "2026-07-28", "2025-11-25"


@dataclass
class Row:
    """A server and what is tried with it: checks by name, each the words of a command and what it prints."""

    name: str
    transport: str
    revision: str
    # The command over standard streams; with {port} that of a server over HTTP.
    command: list
    checks: dict[str, tuple[list[str], str]]
    # Path of the address.
    path: str = "/mcp"
    env: dict[str, str] = field(default_factory=dict)
    # True if there is a tool `rest` whose calls are cancelled.
    cancels: bool = False
    # A resource to listen to, and the command that changes it.
    listens: tuple[str, list[str]] | None = None


def call(tool: str, arguments: dict, *more: str) -> list[str]:
    return ["call", tool, "--args", json.dumps(arguments), *more]


def tried(asks: bool = True) -> dict:
    """Checks of the small server that is there by each SDK."""
    return {
        "list": (["tools"], "count"),
        "call": (call("add", {"a": 1, "b": 2}), "3"),
        "progress": (call("count", {"steps": 3}), "progress: 2 of 3: step 2"),
        **({"elicit": (call("ask", {}, "--answers", '{"sure": true}'), "sure: true")} if asks else {}),
        **({"sample": (call("sample", {}, "--sampled", "a model said"), "sampled: a model said")} if asks else {}),
        "read": (["read", "tried://note"], "a note"),
        "prompt": (["prompts", "greet", "--args", '{"name": "Ana"}'], "Greet Ana."),
    }


def everything() -> dict:
    return {
        "list": (["tools"], "get-sum"),
        "call": (call("get-sum", {"a": 1, "b": 2}), "3"),
        "progress": (call("trigger-long-running-operation", {"duration": 1, "steps": 2}), "progress: 1 of 2"),
        "elicit": (call("trigger-elicitation-request", {}, "--answers", '{"name": "Ana"}'), "Ana"),
        "sample": (
            call("trigger-sampling-request", {"prompt": "tea", "maxTokens": 10}, "--sampled", "a model said"),
            "a model said",
        ),
        "roots": (call("get-roots-list", {}, "--root", "."), "file:///"),
        "read": (["read", "demo://resource/static/document/startup.md"], "Startup"),
        "prompt": (["prompts", "args-prompt", "--args", '{"city": "Oslo"}'], "Oslo"),
    }


def rows(cache: Path, binary: Path, work: Path) -> list[Row]:
    npm = cache / "servers"
    of_npm = npm / "node_modules/.bin"
    first, second = cache / "python-1/bin", cache / "servers-python/bin"
    files = work / "files"
    files.mkdir()
    (files / "note.txt").write_text("a note\n")
    subprocess.run(["git", "init", "--quiet", files], check=True)
    sqlite3.connect(work / "it.db").close()
    found = []
    listened = ("tried://note", call("touch", {}))

    for name, kind in (("TypeScript SDK 1.32.2", "sdk-1"), ("TypeScript SDK 2.4.0", "server-2")):
        command = ["node", npm / "tried.mjs", kind]
        for revision in [LEGACY] if kind == "sdk-1" else [MODERN, LEGACY]:
            found.append(Row(name, "stdio", revision, command, tried(), cancels=True))
            # Its second generation answers older clients without a session, which cannot be asked.
            asks = kind == "sdk-1" or revision == MODERN
            touched = listened if asks else None
            found.append(Row(name, "http", revision, [*command, "{port}"], tried(asks), cancels=asks, listens=touched))
        if kind == "sdk-1":
            words = [*command, "{port}", "sse"]
            found.append(Row(name, "sse", LEGACY, words, tried(), "/sse", cancels=True, listens=listened))
    tools = (("Python SDK 1.30.0", "mcp-1", first), ("Python SDK 2.3.0", "mcp-2", second), ("FastMCP 4.1.2", "fastmcp", second))
    for name, kind, directory in tools:
        command = [directory / "python", HERE / "tried.py", kind]
        for revision in [LEGACY] if kind == "mcp-1" else [MODERN, LEGACY]:
            # FastMCP asks in the older revisions alone.
            asks = tried(kind != "fastmcp" or revision == LEGACY)
            found.append(Row(name, "stdio", revision, [*command, "stdio"], asks, cancels=True))
            touched = listened if kind == "mcp-2" and revision == MODERN else None
            found.append(Row(name, "http", revision, [*command, "http", "{port}"], asks, cancels=True, listens=touched))
        found.append(Row(name, "sse", LEGACY, [*command, "sse", "{port}"], tried(), "/sse", cancels=True))
        if kind == "mcp-1":
            found.append(Row(name, "websocket", LEGACY, [*command, "websocket", "{port}"], tried(), "/", cancels=True))
    program = cache / "rmcp/rmcp-tried"
    for revision in MODERN, LEGACY:
        name = "rmcp 3.9.0"
        found.append(Row(name, "stdio", revision, [program], tried(), cancels=True))
        found.append(Row(name, "http", revision, [program, "{port}"], tried(), cancels=True, listens=listened))

    program = of_npm / "mcp-server-everything"
    found.append(Row("server-everything 2026.8.31", "stdio", LEGACY, [program], everything()))
    env = {"PORT": "{port}"}
    found.append(Row("server-everything 2026.8.31", "http", LEGACY, [program, "streamableHttp"], everything(), env=env))
    found.append(Row("server-everything 2026.8.31", "sse", LEGACY, [program, "sse"], everything(), "/sse", env))
    checks = {
        "list": (["tools"], "read_text_file"),
        "call": (call("read_text_file", {"path": str(files / "note.txt")}), "a note"),
    }
    found.append(Row("server-filesystem 2026.8.31", "stdio", LEGACY, [of_npm / "mcp-server-filesystem", files], checks))
    entity = {"name": "tea", "entityType": "item", "observations": ["hot"]}
    checks = {
        "list": (["tools"], "create_entities"),
        "call": (call("create_entities", {"entities": [entity]}), "hot"),
    }
    env = {"MEMORY_FILE_PATH": str(work / "memory.json")}
    found.append(Row("server-memory 2026.8.31", "stdio", LEGACY, [of_npm / "mcp-server-memory"], checks, env=env))
    thought = {"thought": "tea", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    checks = {"list": (["tools"], "thinking"), "call": (call("sequentialthinking", thought), "thoughtNumber")}
    program = of_npm / "mcp-server-sequential-thinking"
    found.append(Row("server-sequential-thinking 2026.8.31", "stdio", LEGACY, [program], checks))
    checks = {
        "list": (["tools"], "convert_time"),
        "call": (call("get_current_time", {"timezone": "Asia/Shanghai"}), "+08:00"),
    }
    found.append(Row("mcp-server-time 2026.10.19", "stdio", MODERN, [second / "mcp-server-time"], checks))
    checks = {
        "list": (["tools"], "git_status"),
        "call": (call("git_status", {"repo_path": str(files)}), "note.txt"),
    }
    found.append(Row("mcp-server-git 2026.10.19", "stdio", MODERN, [second / "mcp-server-git"], checks))
    checks = {
        "list": (["tools"], "read_query"),
        "call": (call("read_query", {"query": "SELECT 6 * 7 AS it"}), "42"),
        "read": (["read", "memo://insights"], "insights"),
        "prompt": (["prompts", "mcp-demo", "--args", '{"topic": "tea"}'], "tea"),
    }
    command = [first / "mcp-server-sqlite", "--db-path", work / "it.db"]
    found.append(Row("mcp-server-sqlite 2025.4.25", "stdio", LEGACY, command, checks))

    shutil.copytree(HERE.parents[2] / "examples/retail", work / "retail", ignore=shutil.ignore_patterns("*.db*"))
    start = [binary, "start", "--config", work / "retail/mcp-server.yaml"]
    of_client = {"MCP_CLIENT_ID": "warehouse"}
    checks = {
        "list": (["tools"], "inventory-check"),
        "call": (call("inventory-check", {"sku": "TEA-002"}), "TEA-002"),
        "read": (["read", "skill://inventory/inventory-check"], "inventory-check"),
    }
    name = "ours, examples/retail"
    found.append(Row(name, "stdio", MODERN, start, checks, env={**of_client, "MCP_SERVER_LEDGER__PATH": str(work / "0.db")}))
    ways = (("http", MODERN, "/mcp"), ("http", LEGACY, "/mcp"), ("sse", LEGACY, "/mcp/sse"), ("websocket", MODERN, "/mcp/ws"))
    for at, (transport, revision, path) in enumerate(ways, 1):
        command = [*start, "--transport", "http", "--port", "{port}"]
        env = {"MCP_SERVER_LEDGER__PATH": str(work / f"{at}.db"), "MCP_SERVER_HTTP__WEBSOCKET__ENABLED": "true"}
        row = Row(name, transport, revision, command, checks, path, env)
        skill = work / "retail/skills/inventory/inventory-check/SKILL.md"
        row.listens = ("skill://inventory/inventory-check", [sys.executable, "-c", f"open({str(skill)!r}, 'a').write('more')"])
        found.append(row)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def try_row(row: Row, binary: Path, work: Path) -> dict[str, str | None]:
    """What is wrong with each check; None where nothing is."""
    port = free_port()
    words = [str(word).replace("{port}", str(port)) for word in row.command]
    env = {name: value.replace("{port}", str(port)) for name, value in row.env.items()}
    server = None
    if row.transport == "stdio":
        passed = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
        place = [*passed, "--revision", row.revision, "--", *words]
    else:
        scheme = "ws" if row.transport == "websocket" else "http"
        place = ["--revision", row.revision, "--url", f"{scheme}://127.0.0.1:{port}{row.path}"]
        if "retail" in row.name:
            place += ["--header", "X-MCP-Client-ID: warehouse"]
        log = (work / f"server-{port}.log").open("wb")
        server = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **env}, start_new_session=True
        )
    try:
        if server:
            wait_for(port, server)
        seen = {}
        told = run(binary, ["ping", "--format", "json", *place], work)
        try:
            revision = json.loads(told.stdout)["result"]["revision"]
            seen["connect"] = None if revision == row.revision else f"it speaks {revision}"
        except ValueError:
            seen["connect"] = told.stderr
        for name, (command, expected) in row.checks.items():
            told = run(binary, [*command, *place], work)
            text = told.stdout + told.stderr
            fine = told.returncode == 0 and expected.lower() in text.lower()
            seen[name] = None if fine else f"{told.returncode}: {text.strip()[-600:]}"
        if row.cancels:
            seen["cancel"] = cancel(binary, place, work / f"mark-{port}", work)
        if row.listens:
            seen["subscribe"] = listen(binary, place, *row.listens, work)
        return seen
    finally:
        if server:
            end(server)


def run(binary: Path, words: list[str], work: Path) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(
            [binary, "client", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, cwd=work
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, -1, "", f"it was not done within {SECONDS} s")


def cancel(binary: Path, place: list[str], mark: Path, work: Path) -> str | None:
    words = [binary, "client", *call("rest", {"mark": str(mark)}), *place]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=work)
    has = lambda text: mark.exists() and text in mark.read_text()  # noqa: E731
    try:
        if not until(lambda: has("begun")):
            return "the call did not begin"
        process.send_signal(signal.SIGINT)
        status = process.wait(SECONDS)
        if status != 130:
            return f"the client ended with {status}"
        return None if until(lambda: has("cancelled"), 10) else "the server did not hear of it"
    finally:
        process.kill()
        process.wait()


def listen(binary: Path, place: list[str], uri: str, change: list[str], work: Path) -> str | None:
    words = [binary, "client", "listen", "--count", "1", "--resource", uri, *place]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=work
    )
    try:
        said = process.stderr.readline()
        if "listening for changes" not in said:
            return said
        if change[0] == "call":
            told = run(binary, [*change, *place], work)
            if told.returncode:
                return told.stderr
        else:
            subprocess.run(change, check=True)
        output, _ = process.communicate(timeout=SECONDS)
        return None if uri in output or "list_changed" in output else f"it heard {output}"
    except subprocess.TimeoutExpired:
        return "it heard of no change"
    finally:
        process.kill()
        process.wait()


def until(condition, seconds: float = SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def wait_for(port: int, server: subprocess.Popen) -> None:
    def answers() -> bool:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    if not until(answers):
        raise RuntimeError("the server does not listen")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], help="rows whose name has this text")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="owlclaw-servers-") as name:
        work = Path(name)
        all_rows = [it for it in rows(asked.cache, asked.binary, work) if all(word in it.name for word in asked.only)]

        def guarded(row: Row) -> dict:
            try:
                return try_row(row, asked.binary, work)
            except (OSError, RuntimeError) as error:
                return {"start": str(error)}

        with ThreadPoolExecutor(asked.jobs) as pool:
            outcomes = list(pool.map(guarded, all_rows))
    failures = 0
    print("| Server | Transport | Revision | Works |\n|---|---|---|---|")
    for row, seen in zip(all_rows, outcomes):
        works = [name for name, wrong in seen.items() if wrong is None]
        print(f"| {row.name} | {row.transport} | {row.revision} | {', '.join(works)} |")
    for row, seen in zip(all_rows, outcomes):
        for name, wrong in seen.items():
            if wrong is not None:
                failures += 1
                print(f"FAILED {row.name} over {row.transport} in {row.revision}: {name}: {wrong}", file=sys.stderr)
    print(f"{len(all_rows)} servers, {failures} failures, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if failures or not all_rows else 0


if __name__ == "__main__":
    sys.exit(main())
