"""The steps about tasks, questions, prompts and resources, with the Inspector's program for connections that stay (mcpdo).

It shows what becomes of a task, not how, and of the extension's tasks no ids. Of a call it shows no progress.
"""

import json
import os
import re
import secrets
import subprocess
import time

from command import called, contents, environment, refusal, run, say, write_config


def carry_out(plan, home):
    launcher = os.environ["INSPECTOR"]
    program = os.path.join(os.path.dirname(launcher), "../../mcpdo/build/mcp-bin.js")
    # The connections are kept by a process of this run alone.
    private = {"MCP_INSPECTOR_DAEMON_DIR": home, "MCP_INSPECTOR_DAEMON_TOKEN": secrets.token_urlsafe()}
    mcpdo = Mcpdo(["node", program, "--format", "json"], environment(home) | private, plan, home)
    try:
        mcpdo.connect(write_config(plan, home))
        if "confirms" in plan:
            mcpdo.hear()
        for step in plan["steps"]:
            say({"id": step["id"], **mcpdo.outcome_of(step)})
        mcpdo.say("disconnect", "server")
    finally:
        mcpdo.close()
    say({"closed": True})


class Mcpdo:
    def __init__(self, command, environment, plan, home):
        self.command, self.environment, self.plan = command, environment, plan
        self.home = home
        self.tails = []
        self.logged = self.changed = None
        self.read = 0

    def hear(self):
        """Writes down what the server logs to its client."""
        self.say("--connection", "server", "logging/setLevel", "info")
        self.logged = self.follow("logging/tail")

    def follow(self, *words):
        """The file to which a program writes what it hears, until the end."""
        path = os.path.join(self.home, f"heard-{len(self.tails)}")
        with open(path, "wb") as file:
            command = [*self.command, "--connection", "server", *words]
            self.tails.append(subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file))
        time.sleep(1)
        return path

    def logs(self):
        """What was heard so far, as text."""
        if self.logged is None:
            return []
        time.sleep(0.5)
        with open(self.logged, encoding="utf-8") as file:
            return [file.read()]

    def changes(self):
        """The addresses in what was heard of the resource that is followed since the last such step, once there is one."""
        until = time.monotonic() + self.plan["timeout"]
        while time.monotonic() < until:
            time.sleep(0.5)
            with open(self.changed, encoding="utf-8") as file:
                text = file.read()
            told = re.findall(r'"resources/updated",\s*"uri": *"([^"]+)"', text[self.read :])
            if told:
                self.read = len(text)
                return told
        return []

    def close(self):
        for tail in self.tails:
            tail.terminate()
            tail.wait(10)
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
                outcome = self._call(step)
                until = time.monotonic() + self.plan["timeout"]
                while not _is_awaited(step, outcome) and time.monotonic() < until:
                    time.sleep(0.2)
                    outcome = self._call(step)
                return outcome
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
            case "tools":
                listed, refused = self.ask("tools/list")
                return refused or {"tools": listed["tools"]}
            case "templates":
                listed, refused = self.ask("resources/templates/list")
                return refused or {"templates": listed["resourceTemplates"]}
            case "subscribe":
                self.changed = self.follow("resources/subscribe", step["uri"])
                return {}
            case "told":
                return {"told": self.changes()}
            case "beside":
                ran = run(step["command"], dict(os.environ), self.plan["timeout"])
                return {"status": ran.returncode, "output": ran.stdout, "errors": ran.stderr}
            case "complete":
                kind = "prompt" if "prompt" in step else "resource"
                about = ["--complete-ref-type", f"ref/{kind}", "--complete-ref", step.get("prompt") or step["template"]]
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


def _is_awaited(step, outcome):
    """Tell a result that has what the step waits for."""
    structured = outcome.get("structured") or {}
    return outcome.get("isError", True) or step.get("until", {}).items() <= structured.items()
