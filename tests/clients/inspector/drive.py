"""Carries out a plan of steps with the MCP Inspector's command line, one JSON line per outcome.

``drive.py PLAN.json``; see ../plan.md. ``INSPECTOR`` names the Inspector's launcher.

Every step is a run of its own: a new connection and, over stdio, a new server.
The Inspector keeps neither the code nor the data of an error, so outcomes have
only its message. Steps about tasks and questions need a connection that stays: see tasks.py.
"""

import json
import os
import sys
import tempfile

import tasks
from command import called, contents, environment, refusal, run, say, write_config


def options(step):
    match step["do"]:
        case "tools":
            return ["--method", "tools/list"]
        case "resources":
            return ["--method", "resources/list"]
        case "read":
            return ["--method", "resources/read", "--uri", step["uri"]]
        case "call":
            arguments = json.dumps(step["arguments"])
            return ["--method", "tools/call", "--tool-name", step["tool"], "--tool-args-json", arguments]
    raise ValueError(f"unknown step {step}")


def outcome_of(step, ran):
    if not ran.stdout.strip():
        return refusal(ran)
    result = json.loads(ran.stdout)["result"]
    match step["do"]:
        case "tools":
            return {"tools": result["tools"]}
        case "resources":
            return {"resources": result["resources"]}
        case "read":
            return {"contents": contents(result)}
        case "call":
            return {**called(result), "progress": []}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    with tempfile.TemporaryDirectory() as home:
        if "answers" in plan or "confirms" in plan:
            return tasks.carry_out(plan, home)
        inspector = ["node", os.environ["INSPECTOR"], "--cli", "--config", write_config(plan, home)]
        inspector += ["--server", "server", "--protocol-era", plan["era"]]
        inspector += ["--format", "json", "-q", "--stored-auth-only"]
        with_its_home = environment(home)
        handshake = run([*inspector, "--method", "initialize"], with_its_home, plan["timeout"])
        say({"connected": json.loads(handshake.stdout)["result"]["protocolVersion"]})
        for step in plan["steps"]:
            ran = run(inspector + options(step), with_its_home, plan["timeout"])
            say({"id": step["id"], **outcome_of(step, ran)})
    say({"closed": True})


if __name__ == "__main__":
    main()
