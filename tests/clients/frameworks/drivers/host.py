"""The frame of drivers of programs: each prompt is a run of the program, with the entry of `client-config` as it is printed."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import driver

HOME = Path.cwd()
SECONDS = 90


def entry(host):
    """The configuration that the server's own command prints for a client."""
    words = [PLAN["binary"], "client-config", host, "--quiet"]
    words += ["--as", "agent"] if driver.PROCESS else ["--url", PLAN["mcp"], "--with-key"]
    variables = {**os.environ, "MCP_SERVER_TRANSPORT": "stdio" if driver.PROCESS else "http"}
    return subprocess.run(words, cwd=PLAN["shop"], env=variables, capture_output=True, text=True, check=True).stdout


def written(path, content):
    path = HOME / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


async def said(*words, **variables):
    """What a program says in the end."""
    program = await asyncio.create_subprocess_exec(
        *words,
        cwd=HOME,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": str(HOME), "OWLCLAW_API_KEY": PLAN["key"], "NO_COLOR": "1", **variables},
    )
    try:
        out, log = await asyncio.wait_for(program.communicate(), SECONDS)
    except asyncio.TimeoutError:
        program.kill()
        raise RuntimeError(f"{words[0]} does not end") from None
    if program.returncode:
        raise RuntimeError(f"{program.returncode}: {out.decode()[-1500:]} {log.decode()[-1500:]}")
    return out.decode() + log.decode()


async def connected(wanted, *words, **variables):
    """What the program's list of servers says, which must have the words that are wanted."""
    listed = await said(*words, **variables)
    if wanted not in listed:
        raise RuntimeError(listed)


PLAN = driver.PLAN
PACKAGES = Path(PLAN["packages"]) / "node_modules"
