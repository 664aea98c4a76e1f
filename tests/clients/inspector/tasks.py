"""The steps about tasks, with the Inspector's program for connections that stay (mcpdo).

It shows what becomes of a task, not how, and of the extension's tasks no ids.
"""

import json
import os
import secrets

from command import called, environment, refusal, run, say, write_config


def carry_out(plan, home):
    launcher = os.environ["INSPECTOR"]
    program = os.path.join(os.path.dirname(launcher), "../../mcpdo/build/mcp-bin.js")
    # The connections are kept by a process of this run alone.
    private = {"MCP_INSPECTOR_DAEMON_DIR": home, "MCP_INSPECTOR_DAEMON_TOKEN": secrets.token_urlsafe()}
    mcpdo = Mcpdo(["node", program, "--format", "json"], environment(home) | private, plan)
    try:
        mcpdo.connect(write_config(plan, home))
        for step in plan["steps"]:
            say({"id": step["id"], **mcpdo.outcome_of(step)})
        mcpdo.say("disconnect", "server")
    finally:
        mcpdo.say("daemon", "stop")
    say({"closed": True})


class Mcpdo:
    def __init__(self, command, environment, plan):
        self.command, self.environment, self.plan = command, environment, plan

    def say(self, *words):
        return run([*self.command, *words], self.environment, self.plan["timeout"])

    def ask(self, *words):
        """What is answered, or the refusal."""
        ran = self.say("--connection", "server", *words)
        return (json.loads(ran.stdout), None) if ran.stdout.strip() else (None, refusal(ran))

    def connect(self, config):
        ran = self.say("connect", "server", "--config", config, "--era", self.plan["era"])
        if ran.returncode != 0:
            raise RuntimeError(f"not connected: {ran.stderr[-2000:]}")
        shown, refused = self.ask("connections/show")
        if refused:
            raise RuntimeError(f"not connected: {refused}")
        say({"connected": shown["protocolVersion"]})

    def outcome_of(self, step):
        match step["do"]:
            case "task" | "call":
                return self._call(step)
            case "again":
                shown, refused = self.ask("tasks/get", step["task"])
                if refused:
                    return refused
                result, refused = self.ask("tasks/result", step["task"])
                return refused or {"status": shown["task"]["status"], **called(result)}
            case "list":
                listed, refused = self.ask("tasks/list")
                tasks = (listed or {}).get("tasks", [])
                return refused or {"tasks": [{"task": it["taskId"], "status": it["status"]} for it in tasks]}
        raise ValueError(f"unknown step {step}")

    def _call(self, step):
        words = [step["tool"], "--tool-args-json", json.dumps(step["arguments"])]
        asked = []
        result, refused = self.ask("tools/call", *words, *["--task"] * (step["do"] == "task"))
        while result and (question := result.get("elicitationPending")):
            asked.append(question["message"])
            answer = self.plan["answers"].get(question["message"])
            words = ["--decline"] if answer is None else [json.dumps(answer)]
            result, refused = self.ask("elicitation/respond", question["elicitationId"], *words)
        if refused:
            return {"asked": asked, **refused}
        related = result.get("_meta", {}).get("io.modelcontextprotocol/related-task", {})
        return {"task": related.get("taskId"), "asked": asked, **called(result)}
