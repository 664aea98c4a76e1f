"""Ends a server with a signal and starts it again on its port, while its clients look on.

``restart.py FILE SIGNAL LOG PORT COMMAND...``: FILE holds the process id, of the new server afterwards.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

SECONDS = 60


def state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def main() -> int:
    noted, name, log, port, *command = sys.argv[1:]
    deadline = time.monotonic() + SECONDS
    before = int(Path(noted).read_text())
    os.kill(before, getattr(signal, f"SIG{name}"))
    while state(before) != "Z":
        if time.monotonic() > deadline:
            return 2
        time.sleep(0.02)
    with Path(log).open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    Path(noted).write_text(str(process.pid))
    while not is_healthy(int(port)):
        if process.poll() is not None or time.monotonic() > deadline:
            return 3
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main())
