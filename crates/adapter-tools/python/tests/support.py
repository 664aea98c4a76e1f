"""A server's end of the worker protocol, for tests that start real workers."""

import collections
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

PYTHON_DIRECTORY = pathlib.Path(__file__).resolve().parent.parent
if str(PYTHON_DIRECTORY) not in sys.path:
    sys.path.insert(0, str(PYTHON_DIRECTORY))

# Generous: a test that waits this long has failed anyway.
TIMEOUT = 30.0

# How long after a signal the next one comes, while a cancelled call goes on.
INTERRUPT_AGAIN = 0.02

NONCE = "00112233445566778899aabbccddeeff"


class Ended(Exception):
    """The worker closed its end of the socket."""


class Application:
    """A directory of files that make an application."""

    def __init__(self, files):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="owlclaw-worker-test-"))
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)


class WorkerProcess:
    """A worker started as the server starts it. Use as a context manager."""

    def __init__(self, files, app="app.py", interpreter_arguments=("-m", "owlclaw_worker")):
        self.application = Application({"app.py": files} if isinstance(files, str) else files)
        self._directory = tempfile.mkdtemp(prefix="owlclaw-socket-")
        self._path = os.path.join(self._directory, "worker.sock")
        self._output = {}
        self._buffer = b""
        self._interrupted = False
        self._frames = collections.deque()
        self.connection = None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._path)
        listener.listen(1)
        listener.settimeout(TIMEOUT)
        variables = {
            **os.environ,
            "PYTHONPATH": str(PYTHON_DIRECTORY),
            "OWLCLAW_WORKER_SOCKET": self._path,
            "OWLCLAW_WORKER_NONCE": NONCE,
            "OWLCLAW_WORKER_APP": app,
            "OWLCLAW_WORKER_ROOT": str(self.application.root),
        }
        for name in ("stdout", "stderr"):
            self._output[name] = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-B", *interpreter_arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._output["stdout"],
            stderr=self._output["stderr"],
            env=variables,
            cwd=str(self.application.root),
        )
        try:
            self.connection, _ = listener.accept()
        finally:
            listener.close()
        self.hello = self.frame()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.connection is not None:
            self.connection.close()
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            for stream in self._output.values():
                stream.close()
            shutil.rmtree(self._directory, ignore_errors=True)
            self.application.remove()

    def output(self, name):
        """What the worker has written to `stdout` or `stderr` so far."""
        return os.pread(self._output[name].fileno(), 1 << 24, 0).decode("utf-8", "replace")

    def ready(self):
        """The `ready` frame; fails with the traceback if the application could not be loaded."""
        frame = self.frame()
        if frame["type"] != "ready":
            raise AssertionError(frame.get("traceback") or frame)
        return frame

    def send(self, *frames):
        payloads = [json.dumps(frame, separators=(",", ":")).encode() for frame in frames]
        self.send_raw(*payloads)

    def send_raw(self, *payloads):
        self.connection.settimeout(TIMEOUT)
        self.connection.sendall(b"".join(len(one).to_bytes(4, "big") + one for one in payloads))

    def call(self, call_id, name, arguments=None, **context):
        self.send(call_frame(call_id, name, arguments, **context))

    def cancel(self, call_id):
        self.send({"type": "cancel", "id": call_id})
        os.kill(self.process.pid, signal.SIGUSR1)
        self._interrupted = True

    def frame(self, timeout=TIMEOUT):
        """The next frame. Raises `Ended` at the end of the stream."""
        deadline = time.monotonic() + timeout
        while True:
            if len(self._buffer) >= 4:
                length = int.from_bytes(self._buffer[:4], "big")
                if len(self._buffer) >= 4 + length:
                    payload = self._buffer[4 : 4 + length]
                    self._buffer = self._buffer[4 + length :]
                    return json.loads(payload.decode("utf-8"), parse_constant=_refuse)
            left = max(deadline - time.monotonic(), 0)
            # Like the server: a signal just before the handler waits in the kernel is not enough.
            patience = min(left, INTERRUPT_AGAIN) if self._interrupted else left
            readable, _, _ = select.select([self.connection], [], [], patience)
            if not readable and patience < left:
                os.kill(self.process.pid, signal.SIGUSR1)
                continue
            if not readable:
                raise AssertionError(
                    "no frame within %.0f s; stderr: %s" % (timeout, self.output("stderr")[-4000:])
                )
            try:
                data = self.connection.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Ended(self.output("stderr")[-4000:])
            self._buffer += data

    def answer(self, call_id):
        """The result or error of a call; other frames wait for `frames_before`."""
        while True:
            frame = self.frame()
            if frame["type"] in ("result", "error") and frame["id"] == call_id:
                return frame
            self._frames.append(frame)

    def frames_before(self):
        """The frames that `answer` passed over."""
        frames = list(self._frames)
        self._frames.clear()
        return frames

    def result(self, call_id, name, arguments=None, **context):
        """Call, and expect a result."""
        self.call(call_id, name, arguments, **context)
        frame = self.answer(call_id)
        if frame["type"] != "result":
            raise AssertionError(frame.get("traceback") or frame)
        return frame["value"]

    def error(self, call_id, name, arguments=None, **context):
        """Call, and expect an error."""
        self.call(call_id, name, arguments, **context)
        frame = self.answer(call_id)
        if frame["type"] != "error":
            raise AssertionError(frame)
        return frame


def call_frame(call_id, name, arguments=None, **context):
    return {
        "type": "call",
        "id": call_id,
        "name": name,
        "arguments": {} if arguments is None else arguments,
        "ctx": {
            "client_id": "client",
            "request_id": "request-%d" % call_id,
            "deadline_ms": 30000,
            "traceparent": None,
            **context,
        },
    }


def _refuse(constant):
    raise AssertionError("a frame holds %s" % constant)
