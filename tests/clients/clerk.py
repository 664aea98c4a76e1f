"""What an operator does beside a running server, as a step of a client's plan.

``clerk.py BINARY CONFIG approve CLIENT`` approves the one call of that client that waits, by
the command line, and prints what was listed and decided.
``clerk.py BINARY CONFIG rules FILE KIND`` puts FILE in the place of the configuration and waits
until the ledger has one more note of that kind.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 30


def told(*words):
    done = subprocess.run([*words], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        sys.exit(f"{words[1:4]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def approve(binary, config, client):
    ask = [binary, "approvals", "list", "--config", config, "--client", client, "--format", "json"]
    listed = json.loads(told(*ask))
    (waiting,) = listed
    words = ["--by", "alice", "--reason", "asked him", "--config", config, "--format", "json"]
    return {"listed": waiting, "decided": json.loads(told(binary, "approvals", "approve", waiting["id"], *words))}


def notes(binary, ledger, kind):
    # By the environment: the configuration is wrong on purpose at times.
    lines = told("env", f"MCP_SERVER_LEDGER__PATH={ledger}", "MCP_SERVER_APP=", binary, "ledger", "export").splitlines()
    return sum(kind in line for line in lines)


def rules(binary, config, file, kind):
    ledger = Path(config).with_name("ledger.db")
    before = notes(binary, ledger, kind)
    new = Path(config).with_suffix(".new")
    shutil.copyfile(file, new)
    new.replace(config)
    deadline = time.monotonic() + SECONDS
    while notes(binary, ledger, kind) == before:
        if time.monotonic() > deadline:
            sys.exit(f"the ledger never has a note of {kind}")
        time.sleep(0.05)
    return {"noted": kind}


if __name__ == "__main__":
    binary, config, what, *more = sys.argv[1:]
    print(json.dumps({"approve": approve, "rules": rules}[what](binary, config, *more)))
