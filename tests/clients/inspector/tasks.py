"""The steps about tasks, questions and prompts, with the Inspector's program for connections that stay (mcpdo).

It shows what becomes of a task, not how, and of the extension's tasks no ids. Of a call it shows no progress.
"""

import json
import os
import secrets
import subprocess
import time

from command import called, contents, environment, refusal, run, say, write_config


def carry_out(plan, home):
    launcher = os.environ["INSPECTOR"]
    program = os.path.join(os.path.dirname(launcher), "../../mcpdo/build/mcp-bin.js")
    # The connections are kept by a process of this run alone.
    private = {"MCP_INSPECTOR_DAEMON_DIR": home, "MCP_INSPECTOR_DAEMON_TOKEN": secrets.token_urlsafe()}
    mcpdo = Mcpdo(["node", program, "--format", "json"], environment(home) | private, plan)
    try:
        mcpdo.connect(write_config(plan, home))
        if "confirms" in plan:
            mcpdo.hear(home)
        for step in plan["steps"]:
            say({"id": step["id"], **mcpdo.outcome_of(step)})
        mcpdo.say("disconnect", "server")
    finally:
        mcpdo.close()
    say({"closed": True})


class Mcpdo:
    def __init__(self, command, environment, plan):
        self.command, self.environment, self.plan = command, environment, plan
        self.tail = self.heard = None

    def hear(self, home):
        """Writes down what the server logs to its client."""
        self.say("--connection", "server", "logging/setLevel", "info")
        self.heard = os.path.join(home, "heard")
        with open(self.heard, "wb") as file:
            command = [*self.command, "--connection", "server", "logging/tail"]
            self.tail = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        time.sleep(1)

    def logs(self):
        """What was heard so far, as text."""
        if self.heard is None:
            return []
        time.sleep(0.5)
        with open(self.heard, encoding="utf-8") as file:
            return [file.read()]

    def close(self):
        if self.tail is not None:
            self.tail.terminate()
            self.tail.wait(10)
        self.say("daemon", "stop")

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
            case "read":
                read, refused = self.ask("resources/read", step["uri"])
                return refused or {"contents": contents(read)}
            case "prompts":
                listed, refused = self.ask("prompts/list")
                return refused or {"prompts": listed["prompts"]}
            case "prompt":
                pairs = [f"{name}={value}" for name, value in step["arguments"].items()]
                filled, refused = self.ask("prompts/get", step["prompt"], *(["--prompt-args", *pairs] if pairs else []))
                return refused or {"messages": filled["messages"]}
            case "complete":
                about = ["--complete-ref-type", "ref/prompt", "--complete-ref", step["prompt"]]
                about += ["--complete-arg-name", step["argument"], "--complete-arg-value", step["value"]]
                completed, refused = self.ask("prompts/complete", *about)
                return refused or {"values": completed.get("values") or completed["completion"]["values"]}
        raise ValueError(f"unknown step {step}")

    def _call(self, step):
        words = [step["tool"], "--tool-args-json", json.dumps(step["arguments"])]
        asked = []
        words += [word for key, value in step.get("meta", {}).items() for word in ("--metadata", f"{key}={value}")]
        result, refused = self.ask("tools/call", *words, *["--task"] * (step["do"] == "task"))
        while result and (question := result.get("elicitationPending")):
            asked.append(question["message"])
            answer = self.plan.get("answers", self.plan.get("confirms")).get(question["message"])
            words = ["--decline"] if answer is None else [json.dumps(answer)]
            result, refused = self.ask("elicitation/respond", question["elicitationId"], *words)
        if refused:
            return {"asked": asked, **refused}
        related = result.get("_meta", {}).get("io.modelcontextprotocol/related-task", {})
        pictures = [
            {"mimeType": part["mimeType"], "base64": part["data"]} for part in result["content"] if part["type"] == "image"
        ]
        return {"task": related.get("taskId"), "asked": asked, "pictures": pictures, "logs": self.logs() if asked else [], **called(result)}
