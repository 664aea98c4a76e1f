#!/usr/bin/env python3
"""CPU time of one request in a gateway, beside a bare hyper proxy and FastMCP's proxy, in one run.

    cargo build --release -p owlclaw-mcp
    tests/gateway-cost/hop.py target/release/owlclaw-mcp [--bench ../shared/bench]

The load generator, the server behind each hop (`limit`) and the bare proxy (`limit-proxy`) are those of the
benchmark in `--bench`, built below ${OWLCLAW_TEST_CACHE:-.cache}. Each hop is asked for the tool `echo` over HTTP in
revision 2026-07-28; only the hop's own process counts. `owlclaw` has rules and a ledger on disk, whose entries a
power failure does not take; `owlclaw-relaxed` has `ledger.durability: relaxed`. `fastmcp` runs if
tests/clients/servers/run.sh has installed it, or with the Python of `--python`. The machine must have nothing else to do.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FASTMCP = """
import sys
from fastmcp.server import create_proxy
create_proxy(sys.argv[2]).run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), path="/mcp",
                              show_banner=False, log_level="ERROR", stateless_http=True, json_response=True)
"""


def build(bench, cache):
    """The load generator and `limit`."""
    programs = []
    for folder, program in (("loadgen", "mcpbench"), ("peers/limit", "limit")):
        target = cache / program
        command = ["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", target]
        subprocess.run([*command, "--manifest-path", bench / folder / "Cargo.toml"], check=True)
        programs.append(target / "release" / program)
    return programs


def configuration(path, durability):
    plenty = 1_000_000_000
    settings = {
        "transport": "http",
        "ledger": {"path": str(path.with_suffix(".db")), "durability": durability},
        "logging": {"level": "WARNING"},
        "gateway": {"names": "{tool}", "describe_origin": False},
        "upstreams": {"up": {"url": "http://${UPSTREAM}/mcp"}},
        "governance": {"default_quota": {"max_calls_per_minute": plenty, "max_calls_per_day": plenty}},
    }
    path.write_text(json.dumps({"mcp_server": settings}))
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gateway", type=pathlib.Path)
    parser.add_argument("--bench", type=pathlib.Path, default=ROOT / "../shared/bench")
    parser.add_argument("--python", type=pathlib.Path)
    parser.add_argument("--rounds", default="5")
    parser.add_argument("--secs", default="2")
    parser.add_argument("--conns", default="1,16,64")
    given = parser.parse_args()
    cache = pathlib.Path(os.environ.get("OWLCLAW_TEST_CACHE", ROOT / ".cache"))
    mcpbench, limit = build(given.bench.resolve(), cache / "gateway-cost")
    python = given.python or cache / "clients/servers-python/bin/python"

    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        gateway = shutil.copy(given.gateway, work / "gateway")
        hops = {"limit-proxy": f"{limit} proxy --port {{port}} --upstream {{upstream}}"}
        for name, durability in (("owlclaw", "strict"), ("owlclaw-relaxed", "relaxed")):
            file = configuration(work / f"{name}.yaml", durability)
            start = f"{gateway} start --config {file} --port {{port}}"
            hops[name] = f"env UPSTREAM={{upstream}} {start}"
        if python.exists():
            (work / "proxy.py").write_text(FASTMCP)
            hops["fastmcp"] = f"{python} {work / 'proxy.py'} {{port}} http://{{upstream}}/mcp"
        else:
            print("fastmcp is not installed, and left out")
        upstream = f"{limit} http --port {{port}} --tools {{tools}}"
        peers = []
        for name, command in hops.items():
            lines = [f"name = {name}", f"http = {command}", f"upstream = {upstream}"]
            lines = [f"{key} = {json.dumps(value)}" for key, _, value in (line.partition(" = ") for line in lines)]
            peers += ["[[peer]]", *lines, 'eras = ["modern"]', ""]
        (work / "peers.toml").write_text("\n".join(peers))
        out = work / "hop.jsonl"
        options = ["--rounds", given.rounds, "--secs", given.secs, "--conns", given.conns, "--scenarios", "call"]
        config = ["--config", work / "peers.toml", "--eras", "modern", "--out", out]
        subprocess.run([mcpbench, "suite", *config, *options], check=True)
        subprocess.run([mcpbench, "report", out, "--baseline", "limit-proxy"], check=True)


main()
