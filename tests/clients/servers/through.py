"""Official clients call official servers through the gateway: each client has all of the servers behind one endpoint.

    through.py --binary BINARY --cache CACHE

Called by run.sh, which installs clients and servers. Each cell is what one client saw of one server: the list, a call,
progress, a form, reading and a prompt. Besides, a client of ours hears of a resource of each server that tells of
changes, since another client changes it. Prints a table of what was seen.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from processes import Server, drive, driver_command, end, environment  # noqa: E402

# Drivers and eras, over Streamable HTTP.
CLIENTS = [
    ("python-1", "legacy"),
    ("python-2", "legacy"),
    ("python-2", "modern"),
    ("typescript-1", "legacy"),
    ("typescript-2", "legacy"),
    ("typescript-2", "modern"),
]


def servers(cache: Path) -> dict[str, dict]:
    """Upstreams of the gateway: one for each SDK, and one that other people use."""
    npm = cache / "servers"
    first, second = cache / "python-1/bin/python", cache / "servers-python/bin/python"
    node = lambda *words: {"command": shutil.which("node"), "args": [str(npm / words[0]), *words[1:]]}  # noqa: E731
    python = lambda program, kind: {"command": str(program), "args": [str(HERE / "tried.py"), kind, "stdio"]}  # noqa: E731
    return {
        "ts1": node("tried.mjs", "sdk-1"),
        "ts2": node("tried.mjs", "server-2"),
        "py1": python(first, "mcp-1"),
        "py2": python(second, "mcp-2"),
        "fastmcp": python(second, "fastmcp"),
        "rmcp": {"command": str(cache / "rmcp/rmcp-tried")},
        "everything": {"command": str(npm / "node_modules/.bin/mcp-server-everything")},
    }


def steps(server: str) -> list[dict]:
    tool = lambda name, arguments, **more: {"do": "call", "tool": f"mcp_{server}_{name}", "arguments": arguments, **more}  # noqa: E731
    if server == "everything":
        wanted = {
            "call": tool("get-sum", {"a": 1, "b": 2}),
            "read": {"do": "read", "uri": f"mcp.{server}+demo://resource/static/document/startup.md"},
            "prompt": {"do": "prompt", "prompt": f"mcp_{server}_args-prompt", "arguments": {"city": "Oslo"}},
        }
    else:
        wanted = {
            "call": tool("add", {"a": 1, "b": 2}),
            "progress": tool("count", {"steps": 3}, progress=True),
            "elicit": tool("ask", {}),
            "read": {"do": "read", "uri": f"mcp.{server}+tried://note"},
            "prompt": {"do": "prompt", "prompt": f"mcp_{server}_greet", "arguments": {"name": "Ana"}},
        }
    if server == "fastmcp":
        # It asks in the older revisions alone, and is spoken to in the newest.
        del wanted["elicit"]
    return [{"id": f"{server} {name}", **step} for name, step in wanted.items()]


def wrong(server: str, name: str, outcome: dict) -> str | None:
    """What is wrong with the outcome of a step; None where nothing is."""
    said = json.dumps(outcome)
    if "error" in outcome or outcome.get("isError"):
        return said[:300]
    if name == "read":
        text = b"".join(base64.b64decode(part["base64"]) for part in outcome["contents"]).decode()
        return None if ("a note" in text or "Startup" in text) else text[:300]
    if name == "progress":
        return None if [1, 3] == [it for one in outcome["progress"][:1] for it in one[:2]] else said[:300]
    expected = {"call": "3", "elicit": "sure: true", "prompt": "Oslo" if server == "everything" else "Greet Ana."}[name]
    return None if expected in said or expected.replace("true", "True") in said else said[:300]


def try_client(client: str, era: str, url: str, cache: Path, work: Path, names: list[str]) -> dict[str, dict[str, str | None]]:
    """By server and step, what is wrong."""
    plan = {
        "transport": "http",
        "era": era,
        "url": url,
        "command": [],
        "cwd": str(work),
        "env": {},
        "headers": {"X-MCP-Client-ID": f"{client}-{era}"},
        "timeout": 60,
        "confirms": {"Sure?": {"sure": True}},
        "steps": [{"id": "list", "do": "tools"}, *(step for name in names for step in steps(name))],
    }
    results = work / f"{client}-{era}"
    results.mkdir()
    outcomes, trouble = drive(driver_command(client, cache), plan, environment(cache, ""), results)
    by_id = {it["id"]: it for it in outcomes if "id" in it}
    listed = {tool["name"] for tool in by_id.get("list", {}).get("tools", [])}
    seen: dict[str, dict[str, str | None]] = {}
    for name in names:
        found = seen[name] = {"list": None if any(it.startswith(f"mcp_{name}_") for it in listed) else trouble or str(sorted(listed))}
        for step in steps(name):
            short = step["id"].partition(" ")[2]
            outcome = by_id.get(step["id"])
            found[short] = f"there is no outcome: {trouble}" if outcome is None else wrong(name, short, outcome)
    return seen


def listen(binary: Path, url: str, name: str, work: Path) -> str | None:
    """What is wrong with a subscription to a resource of a server; None where nothing is."""
    place = ["--url", url]
    words = [binary, "client", "listen", "--count", "1", "--resource", f"mcp.{name}+tried://note", *place]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=work) as it:
        try:
            said = it.stderr.readline()
            if "listening for changes" not in said:
                return said
            words = [binary, "client", "call", f"mcp_{name.replace('-', '_')}_touch", *place]
            told = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd=work)
            if told.returncode:
                return told.stderr
            heard, _ = it.communicate(timeout=20)
            return None if "tried://note" in heard else heard
        except subprocess.TimeoutExpired:
            return "nothing was heard"
        finally:
            it.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="owlclaw-through-") as directory:
        work = Path(directory)
        upstreams = servers(arguments.cache)
        # One child for each client: the questions of a legacy server do not say whose they are. Those that tell of
        # changes are there once more, with one child for all clients.
        telling = ["ts1", "py2", "rmcp"]
        settings = {
            "transport": "http",
            "ledger": {"path": "ledger.db"},
            "upstreams": {
                **{name: {**it, "isolation": "per-client"} for name, it in upstreams.items()},
                **{f"all-{name}": upstreams[name] for name in telling},
            },
            "gateway": {"first_start_seconds": 30},
            "http": {"allow_anonymous": True},
            "governance": {"default_quota": {"max_calls_per_minute": 10000, "max_calls_per_day": 10000}},
        }
        config = work / "mcp-server.yaml"
        config.write_text(json.dumps({"mcp_server": settings}))
        words = [str(arguments.binary), "start", "--config", str(config), "--port", "{port}"]
        server = Server(words, environment(arguments.cache, ""), work / "gateway.log")
        try:
            url = f"http://127.0.0.1:{server.port}/mcp"
            with ThreadPoolExecutor(2) as pool:
                tried = [pool.submit(try_client, *it, url, arguments.cache, work, list(upstreams)) for it in CLIENTS]
                for (client, era), running in zip(CLIENTS, tried):
                    for name, found in running.result().items():
                        print(f"{client:<13} {era:<7} {name:<11} " + " ".join(k for k, why in found.items() if why is None), flush=True)
                        for check, why in found.items():
                            if why is not None:
                                failed += 1
                                print(f"    FAILED {check}: {why[:2000]}", flush=True)
            for name in telling:
                why = listen(arguments.binary, url, f"all-{name}", work)
                print(f"{'ours':<13} {'modern':<7} {name:<11} {'subscribe' if why is None else f'FAILED {why}'}", flush=True)
                failed += why is not None
        finally:
            end(server.process)
            if failed:
                print((work / "gateway.log").read_text()[-2000:])
    print(f"{failed} checks failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
