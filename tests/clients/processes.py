"""The processes of a run: servers, the official clients' drivers, and whatever they leave behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent

STEP_SECONDS = 60
DRIVER_SECONDS = 240
START_SECONDS = 60
STOP_SECONDS = 10

# In the environment of all we start, and so of all that those start: how strays are found.
MARK = "OWLCLAW_CLIENT_RUN"


def driver_command(client: str, cache: Path) -> list[str]:
    return {
        "python-2": [str(cache / "python-2/bin/python"), str(HERE / "python/drive.py")],
        "python-1": [str(cache / "python-1/bin/python"), str(HERE / "python/drive_v1.py")],
        "typescript-2": ["node", str(cache / "typescript/drive.mjs")],
        "typescript-1": ["node", str(cache / "typescript/drive_v1.mjs")],
        "inspector": [sys.executable, str(HERE / "inspector/drive.py")],
    }[client]


def environment(cache: Path, mark: str) -> dict[str, str]:
    launcher = cache / "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    return {
        **os.environ,
        MARK: mark,
        "INSPECTOR": str(launcher),
        "PYTHONDONTWRITEBYTECODE": "1",
        # The Inspector is started for every step.
        "NODE_COMPILE_CACHE": str(cache / "node-compiled"),
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def strays(mark: str) -> list[int]:
    """The processes that still carry our mark, whoever started them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in variables and state != "Z" and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def wait_for_strays(mark: str, seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while left := strays(mark):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def end(process: subprocess.Popen, seconds: float = STOP_SECONDS) -> int | None:
    """Asks a process to stop; its status, or None when it had to be killed."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(seconds)


class Server:
    """An HTTP server on a free loopback port.

    "{port}" is replaced in its command. `healthy` is the status of /health once it listens, over TLS
    if there is an authority that vouches for it. `prepare` is told the port before it starts.
    """

    def __init__(
        self,
        command: list,
        env: dict[str, str],
        log: Path,
        healthy: int = 200,
        authority: str | None = None,
        prepare: Callable[[int], object] | None = None,
    ) -> None:
        self.port = free_port()
        self.log = log
        self._trust = authority and ssl.create_default_context(cafile=authority)
        if prepare:
            prepare(self.port)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(word).replace("{port}", str(self.port)) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )
        try:
            self._wait_until(healthy)
        except BaseException:
            end(self.process)
            raise

    def _wait_until(self, healthy: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {tail(self.log)}")
            try:
                address = f"{'https' if self._trust else 'http'}://127.0.0.1:{self.port}/health"
                with urllib.request.urlopen(address, timeout=5, context=self._trust) as answer:
                    status = answer.status
            except urllib.error.HTTPError as error:
                status = error.code
            except (urllib.error.URLError, OSError):
                status = None
            if status == healthy:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server was not healthy within {START_SECONDS} s: {tail(self.log)}")
            time.sleep(0.05)


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1200:].strip() or "(it said nothing)"


def drive(command: list[str], plan: dict, env: dict[str, str], results: Path) -> tuple[list[dict], str | None]:
    """The driver's outcomes, and what went wrong with the driver itself. Both are kept in `results`."""
    identity = plan["headers"]["X-MCP-Client-ID"]
    path = results / f"{identity}-plan.json"
    path.write_text(json.dumps(plan, indent=1), encoding="utf-8")
    # Over stdio, what the server writes to its standard error arrives here too.
    log = results / f"{identity}-errors.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=DRIVER_SECONDS)
            trouble = None if process.returncode == 0 else f"it ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            end(process)
            output, _ = process.communicate()
            trouble = f"it was not done within {DRIVER_SECONDS} s"
    (results / f"{identity}-outcomes.jsonl").write_bytes(output)
    outcomes = []
    for line in output.splitlines():
        try:
            outcomes.append(json.loads(line))
        except ValueError:
            trouble = trouble or f"it printed {line[:200]!r}"
    return outcomes, f"{trouble}: {tail(log)}" if trouble else None
