"""Tasks that workers carry out: each has one effect, or is on record as one whose end nobody knows.

A server, two workers, PostgreSQL and a Temporal development server, all real, all processes of their own. The
tools are programs that write a line when they begin and one when they end.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

TASKS = "io.modelcontextprotocol/tasks"
PROTOCOL = "2026-07-28"
QUEUE = "reports"
# What takes a lease and a silence of Temporal, on a machine that is busy.
PATIENCE = 180


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what: str, done, patience: float = PATIENCE):
    """Waits until DONE gives something, and gives it."""
    begun = time.monotonic()
    while True:
        if found := done():
            return found
        if patience < time.monotonic() - begun:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.1)


class Process:
    def __init__(self, name: str, command: list, home: Path, env: dict[str, str] | None = None, user: int | None = None):
        self.name, self.command, self.home, self.env, self.user = name, [str(it) for it in command], home, env, user
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.log = self.home / f"{self.name}-{self.starts}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.home, env={**os.environ, **(self.env or {})}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, user=self.user,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def saying(self, text: str) -> Process:
        def heard() -> bool:
            if (status := self.process.poll()) is not None:
                raise AssertionError(f"{self.name} has ended with {status}:\n{self.said()[-4000:]}")
            return text in self.said()

        until(f"{self.name} says {text!r}", heard)
        return self

    def kill(self, how: int = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait(60)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


class World:
    """Everything that runs, in one directory."""

    def __init__(self, program: Path, temporal: Path, home: Path):
        self.program, self.temporal_program, self.home = program, temporal, home
        self.processes: list[Process] = []
        self.begin_postgres()
        self.temporal_port = free_port()
        self.temporal = self.run("temporal", [
            temporal, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", self.temporal_port,
            "--http-port", free_port(), "--metrics-port", free_port(), "--db-filename", home / "temporal.db",
        ])
        until("Temporal serves", lambda: self.ctl("operator", "cluster", "health").returncode == 0)
        (home / "effects").touch()
        (home / "skills").mkdir()
        script = home / "report"
        script.write_text(
            '#!/bin/sh\n# ID SECONDS\necho "begun $1" >> effects\nsleep "$2"\necho "done $1" >> effects\necho "made $1"\n'
        )
        script.chmod(0o755)
        self.configure()
        self.port = free_port()
        self.server = self.run("server", [program, "start", "--config", "mcp-server.yaml", "--transport", "http", "--port", self.port])
        self.server.saying('"serving"')

    def run(self, name: str, command: list, env: dict[str, str] | None = None, user: int | None = None) -> Process:
        process = Process(name, command, self.home, env, user)
        self.processes.append(process)
        return process

    def worker(self, name: str) -> Process:
        command = [self.program, "worker", "--config", "mcp-server.yaml", "--calls", "8"]
        return self.run(name, command).saying("carrying out calls")

    def begin_postgres(self) -> None:
        tools = Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
        user = None
        data = self.home / "postgres"
        data.mkdir()
        if os.getuid() == 0:
            # It does not run as root.
            user = pwd.getpwnam("postgres").pw_uid
            os.chown(data, user, -1)
            self.home.chmod(0o755)
        subprocess.run(
            [tools / "initdb", "-D", data / "d", "-U", "owlclaw", "-A", "trust", "--no-sync", "-E", "UTF8"],
            check=True, stdout=subprocess.DEVNULL, user=user, cwd=data,
        )
        self.postgres_port = free_port()
        command = [tools / "postgres", "-D", data / "d", "-p", self.postgres_port, "-h", "127.0.0.1", "-k", data]
        self.postgres = Process("postgres", command, self.home, user=user)
        self.processes.insert(0, self.postgres)
        ready = [tools / "pg_isready", "-h", "127.0.0.1", "-p", str(self.postgres_port), "-U", "owlclaw"]
        until("PostgreSQL serves", lambda: subprocess.run(ready, stdout=subprocess.DEVNULL).returncode == 0)
        subprocess.run(
            [tools / "createdb", "-h", "127.0.0.1", "-p", str(self.postgres_port), "-U", "owlclaw", "owlclaw"], check=True
        )
        self.psql = [tools / "psql", "-h", "127.0.0.1", "-p", str(self.postgres_port), "-U", "owlclaw", "-tAc"]

    def configure(self) -> None:
        schema = {"type": "object", "properties": {"id": {"type": "string"}, "seconds": {"type": "integer"}},
                  "required": ["id", "seconds"]}
        tool = {"description": "Makes a report.", "run": ["./report", "{id}", "{seconds}"], "input_schema": schema,
                "output": "text", "env": {"PATH": "/usr/bin:/bin"}}
        here = {"mcp_server": {
            "ledger": {"url": f"postgres://owlclaw@127.0.0.1:{self.postgres_port}/owlclaw"},
            "resources": {"skills_dir": str(self.home / "skills")},
            "commands": {
                "report-once": {**tool, "idempotent": False, "destructive": True},
                "report-again": {**tool, "idempotent": True},
                "quick": tool,
                "report-denied": tool,
                "report-hidden": tool,
            },
            "tasks": {"temporal": {
                "address": f"http://127.0.0.1:{self.temporal_port}",
                "queues": {QUEUE: {"tools": ["report-*"]}},
            }},
            "governance": {
                "default_quota": {"max_calls_per_minute": 100000, "max_calls_per_day": 100000},
                "default": {"tools": {"deny": ["report-denied"], "hide": ["report-hidden"]}},
            },
            "logging": {"format": "json"},
        }}
        # JSON is YAML.
        (self.home / "mcp-server.yaml").write_text(json.dumps(here))

    def ctl(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(self.temporal_program), *words, "--address", f"127.0.0.1:{self.temporal_port}"],
            capture_output=True, text=True, timeout=60,
        )

    def workflow(self, task: str) -> str:
        said = self.ctl("workflow", "describe", "-w", task, "-o", "json")
        return json.loads(said.stdout)["workflowExecutionInfo"]["status"] if said.returncode == 0 else said.stderr

    def ask(self, method: str, params: dict, port: int | None = None) -> dict:
        meta = {"protocolVersion": PROTOCOL, "clientInfo": {"name": "run", "version": "1"},
                "clientCapabilities": {"extensions": {TASKS: {}}}}
        params = {**params, "_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}}
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                   "MCP-Protocol-Version": PROTOCOL, "Mcp-Method": method, "X-MCP-Client-ID": "ada"}
        if name := params.get("name") or params.get("taskId"):
            headers["Mcp-Name"] = name
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.port}/mcp", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        if text.startswith(("event:", "data:", "id:", ":", "retry:")):
            text = [line[5:] for line in text.splitlines() if line.startswith("data:")][-1]
        return json.loads(text)

    def begin(self, tool: str, name: str, seconds: int) -> str:
        answer = self.ask("tools/call", {"name": tool, "arguments": {"id": name, "seconds": seconds}})
        assert answer.get("result", {}).get("resultType") == "task", answer
        assert answer["result"]["status"] == "working", answer
        return answer["result"]["taskId"]

    def task(self, task: str) -> dict:
        answer = self.ask("tasks/get", {"taskId": task})
        assert "result" in answer, answer
        return answer["result"]

    def ended(self, task: str, status: str) -> dict:
        def over():
            found = self.task(task)
            return found if found["status"] not in ("working", "input_required") else None

        found = until(f"the task {task} is over", over)
        assert found["status"] == status, found
        return found

    def effects(self, name: str) -> list[str]:
        lines = (self.home / "effects").read_text().splitlines()
        return [line.split(" ")[0] for line in lines if line.split(" ")[1] == name]

    def begun(self, name: str) -> None:
        until(f"{name} has begun", lambda: self.effects(name))

    def calls(self, task: str) -> list[dict]:
        """The calls of a task in the ledger, in order."""
        said = subprocess.run(
            [self.program, "ledger", "export", "--config", "mcp-server.yaml"],
            cwd=self.home, capture_output=True, text=True, check=True, timeout=120,
        )
        calls = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
        return [call for call in calls if f"task/{task}/" in json.dumps(call)]

    def end(self) -> None:
        for process in reversed(self.processes):
            process.end()


def test_a_task_goes_through_server_engine_and_worker(world: World) -> None:
    """A task goes through server, Temporal and worker, and its result is the client's."""
    task = world.begin("report-once", "plain", 0)
    found = world.ended(task, "completed")
    assert found["result"]["content"][0]["text"].strip() == "made plain", found
    assert world.effects("plain") == ["begun", "done"]
    until("the workflow is over", lambda: world.workflow(task) == "WORKFLOW_EXECUTION_STATUS_COMPLETED")
    assert len(world.calls(task)) == 1, world.calls(task)


def test_a_tool_of_no_queue_is_carried_out_by_the_server(world: World) -> None:
    """A tool of no queue is carried out by the server, without Temporal."""
    answer = world.ask("tools/call", {"name": "quick", "arguments": {"id": "quick", "seconds": 0}})
    assert "made quick" in json.dumps(answer), answer


def test_rules_are_where_the_call_is(world: World) -> None:
    """A hidden tool is refused at once and becomes no task; a call that rules deny is refused at the worker, on record."""
    answer = world.ask("tools/call", {"name": "report-hidden", "arguments": {"id": "hidden", "seconds": 0}})
    assert "error" in answer and "taskId" not in json.dumps(answer), answer
    task = world.begin("report-denied", "denied", 0)
    result = world.ended(task, "completed")["result"]
    assert result["isError"] and result["_meta"]["io.owlclaw/error"]["reason"] == "permission", result
    (call,) = world.calls(task)
    assert "denied" in json.dumps(call), call
    assert world.effects("hidden") == world.effects("denied") == []


def test_a_client_cancels_a_call_at_a_worker(world: World) -> None:
    """tasks/cancel ends the call at the worker, and the workflow."""
    task = world.begin("report-once", "client-cancels", 600)
    world.begun("client-cancels")
    world.ask("tasks/cancel", {"taskId": task})
    assert world.task(task)["status"] == "cancelled"
    until("the workflow is cancelled", lambda: world.workflow(task) in (
        "WORKFLOW_EXECUTION_STATUS_CANCELED", "WORKFLOW_EXECUTION_STATUS_COMPLETED"))
    until("the call is on record as cancelled", lambda: "cancelled" in json.dumps(world.calls(task)))
    assert world.effects("client-cancels") == ["begun"]


def test_an_operator_of_temporal_cancels_a_task(world: World) -> None:
    """A workflow that an operator cancels is a task that is cancelled, and its call ends."""
    task = world.begin("report-once", "operator-cancels", 600)
    world.begun("operator-cancels")
    said = world.ctl("workflow", "cancel", "-w", task)
    assert said.returncode == 0, said
    world.ended(task, "cancelled")
    until("the call is on record as cancelled", lambda: "cancelled" in json.dumps(world.calls(task)))
    until("the workflow is over", lambda: world.workflow(task) == "WORKFLOW_EXECUTION_STATUS_CANCELED")
    assert world.effects("operator-cancels") == ["begun"]


def test_a_workflow_that_is_terminated_is_a_task_that_is_cancelled(world: World) -> None:
    """A workflow that an operator terminates before a worker has it is a task that is cancelled and never begun."""
    task = world.begin("report-once", "terminated", 0)
    until("it is queued", lambda: "RUNNING" in world.workflow(task))
    said = world.ctl("workflow", "terminate", "-w", task)
    assert said.returncode == 0, said
    world.ended(task, "cancelled")
    assert world.effects("terminated") == []


def test_a_killed_worker_leaves_one_effect_or_unknown(world: World, doomed: Process) -> None:
    """Of calls at a worker that dies, what may be called again is, by another; the rest is unknown, on record."""
    again, once = world.begin("report-again", "again", 20), world.begin("report-once", "once", 20)
    world.begun("again"), world.begun("once")
    world.worker("worker-b")
    doomed.kill()
    found = world.ended(once, "failed")
    assert found["error"]["data"]["retryable"] is False, found
    world.ended(again, "completed")
    # Programs of the dead worker may end their line, and none is begun once more that may not be.
    assert world.effects("once").count("begun") == 1, world.effects("once")
    assert world.effects("again").count("begun") == 2, world.effects("again")
    assert len(world.calls(again)) == 2 and len(world.calls(once)) == 1


def test_temporal_is_killed_and_nothing_is_lost_or_doubled(world: World) -> None:
    """While Temporal is down, calls under way go on, and new ones wait in the store; nothing is done twice."""
    going = world.begin("report-once", "going", 8)
    world.begun("going")
    world.temporal.kill()
    meanwhile = world.begin("report-once", "meanwhile", 0)
    world.ended(going, "completed")
    assert world.effects("meanwhile") == []
    world.temporal.start()
    world.ended(meanwhile, "completed")
    for name in ("going", "meanwhile"):
        assert world.effects(name) == ["begun", "done"], world.effects(name)
    for task in (going, meanwhile):
        until("the workflow is over", lambda: world.workflow(task) == "WORKFLOW_EXECUTION_STATUS_COMPLETED")
    assert world.effects("going") == ["begun", "done"]


def test_tasks_outlive_the_server_that_accepted_them(world: World) -> None:
    """Tasks do not mind the death of the server that accepted them."""
    tasks = [world.begin("report-once", f"orphan-{number}", 3) for number in range(4)]
    world.server.kill()
    world.server.start()
    world.server.saying('"serving"')
    for number, task in enumerate(tasks):
        world.ended(task, "completed")
        assert world.effects(f"orphan-{number}") == ["begun", "done"]


def test_a_worker_ends_what_it_has_begun(world: World, worker: Process) -> None:
    """A worker that is told to stop ends what it has begun."""
    task = world.begin("report-once", "drained", 2)
    world.begun("drained")
    worker.kill(signal.SIGTERM)
    assert worker.process.returncode == 0, worker.said()[-4000:]
    world.ended(task, "completed")
    assert world.effects("drained") == ["begun", "done"]


def test_a_program_without_temporal_says_so(program: Path, home: Path) -> None:
    """A program without Temporal refuses to start with it configured, and says how to get it."""
    done = subprocess.run(
        [program, "start", "--config", "mcp-server.yaml", "--transport", "http", "--port", str(free_port())],
        cwd=home, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 1, done
    assert "--features temporal" in done.stderr, done.stderr
    done = subprocess.run([program, "worker", "--config", "mcp-server.yaml"], cwd=home, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "--features temporal" in done.stderr, done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("temporal", type=Path)
    parser.add_argument("--plain", type=Path, help="a program that was built without Temporal")
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="owlclaw-temporal-"))
    world = None
    begun = time.monotonic()

    def step(part, *more) -> None:
        part(world, *more)
        print(f"ok   {part.__doc__.splitlines()[0]} (after {time.monotonic() - begun:.0f} s)", flush=True)

    try:
        world = World(asked.program, asked.temporal, home)
        step(test_a_workflow_that_is_terminated_is_a_task_that_is_cancelled)
        first = world.worker("worker-a")
        for part in (
            test_a_task_goes_through_server_engine_and_worker,
            test_a_tool_of_no_queue_is_carried_out_by_the_server,
            test_rules_are_where_the_call_is,
            test_a_client_cancels_a_call_at_a_worker,
            test_an_operator_of_temporal_cancels_a_task,
        ):
            step(part)
        step(test_temporal_is_killed_and_nothing_is_lost_or_doubled)
        step(test_tasks_outlive_the_server_that_accepted_them)
        step(test_a_killed_worker_leaves_one_effect_or_unknown, first)
        step(test_a_worker_ends_what_it_has_begun, world.processes[-1])
        if asked.plain:
            test_a_program_without_temporal_says_so(asked.plain, home)
            print("ok   a program without Temporal says so")
    except BaseException:
        if world:
            for process in world.processes[1:]:
                print(f"--- {process.name}\n{process.said()[-3000:]}", file=sys.stderr)
        raise
    finally:
        if world:
            world.end()
        if not asked.keep:
            subprocess.run(["rm", "-rf", home])
    print(f"all of it held, in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
