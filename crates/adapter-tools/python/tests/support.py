"""A server's end of the worker protocol, for tests that start real launchers and workers."""

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


def _old_pydantic():
    try:
        import pydantic

        if pydantic.VERSION < "2":
            return pydantic
        # It knows no Python 3.14.
        from pydantic import v1

        return v1 if sys.version_info < (3, 14) else None
    except ImportError:
        return None


# pydantic 1, be it as a part of version 2; None without any.
OLD_PYDANTIC = _old_pydantic()


class Ended(Exception):
    """The other end closed the socket."""


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


class Frames:
    """One connection, and what the process at its other end writes meanwhile."""

    def __init__(self, connection, log):
        self.connection = connection
        self.log = log
        self._buffer = b""

    def send(self, *frames):
        payloads = [json.dumps(frame, separators=(",", ":")).encode() for frame in frames]
        self.send_raw(*payloads)

    def send_raw(self, *payloads):
        self.connection.settimeout(TIMEOUT)
        self.connection.sendall(b"".join(len(one).to_bytes(4, "big") + one for one in payloads))

    def frame(self, timeout=TIMEOUT, meanwhile=None):
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
            patience = min(left, INTERRUPT_AGAIN) if meanwhile else left
            readable, _, _ = select.select([self.connection, *self.log.sources()], [], [], patience)
            self.log.drain()
            if not readable and patience < left:
                meanwhile()
                continue
            if not readable:
                raise AssertionError(
                    "no frame within %.0f s; stderr: %s" % (timeout, self.log.text("stderr")[-4000:])
                )
            if self.connection not in readable:
                continue
            try:
                data = self.connection.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Ended(self.log.text("stderr")[-4000:])
            self._buffer += data


class Log:
    """Standard output and error of a process, from pipes."""

    def __init__(self, **descriptors):
        self._descriptors = descriptors
        self._bytes = {name: b"" for name in descriptors}
        self._open = set(descriptors)
        for descriptor in descriptors.values():
            os.set_blocking(descriptor, False)

    def sources(self):
        return [self._descriptors[name] for name in self._open]

    def drain(self):
        for name in list(self._open):
            while True:
                try:
                    data = os.read(self._descriptors[name], 1 << 16)
                except BlockingIOError:
                    break
                if not data:
                    self._open.discard(name)
                    break
                self._bytes[name] += data

    def bytes(self, name):
        self.drain()
        return self._bytes[name]

    def text(self, name):
        return self.bytes(name).decode("utf-8", "replace")

    def wait_for(self, name, expected):
        """Wait until `expected` has been written."""
        deadline = time.monotonic() + TIMEOUT
        while expected not in self.text(name):
            if time.monotonic() > deadline:
                raise AssertionError("%r was not written, but %r" % (expected, self.text(name)[-4000:]))
            select.select(self.sources(), [], [], 1)

    def close(self):
        for descriptor in self._descriptors.values():
            os.close(descriptor)


class Launcher(Frames):
    """A launcher started as the server starts it. Use as a context manager."""

    def __init__(self, files, app="app.py", start="fork", memory=None, threads=None, arguments=(str(PYTHON_DIRECTORY / "owlclaw_worker" / "__main__.py"),), variables=()):
        self.application = Application({"app.py": files} if isinstance(files, str) else files)
        self.directory = tempfile.mkdtemp(prefix="owlclaw-socket-")
        self.workers = {}
        self.exited = {}
        self._next = 0
        path = os.path.join(self.directory, "worker.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(16)
        self.listener.settimeout(TIMEOUT)
        environment = {
            **os.environ,
            "PYTHONPATH": str(PYTHON_DIRECTORY),
            "OWLCLAW_WORKER_SOCKET": path,
            "OWLCLAW_WORKER_NONCE": NONCE,
            "OWLCLAW_WORKER_APP": app,
            "OWLCLAW_WORKER_ROOT": str(self.application.root),
            "OWLCLAW_WORKER_START": start,
            **dict(variables),
        }
        if threads is not None:
            environment["OWLCLAW_WORKER_THREADS"] = str(threads)
        if memory is not None:
            environment["OWLCLAW_WORKER_MEMORY"] = str(memory)
        pipes = {"stdout": os.pipe(), "stderr": os.pipe()}
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-B", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=pipes["stdout"][1],
            stderr=pipes["stderr"][1],
            env=environment,
            cwd=str(self.application.root),
        )
        for _, writing in pipes.values():
            os.close(writing)
        connection, _ = self.listener.accept()
        super().__init__(connection, Log(**{name: reading for name, (reading, _) in pipes.items()}))
        self.hello = super().frame()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            for worker in self.workers.values():
                worker.connection.close()
                worker.log.close()
            self.listener.close()
            self.log.close()
            shutil.rmtree(self.directory, ignore_errors=True)
            self.application.remove()

    def frame(self, timeout=TIMEOUT, meanwhile=None):
        """The next frame, of which `exited` is remembered."""
        frame = super().frame(timeout, meanwhile)
        if frame["type"] == "exited":
            self.exited[frame["worker"]] = frame
        return frame

    def ready(self):
        """The `ready` frame; fails with the traceback if the application could not be loaded."""
        return _expect_ready(self.frame())

    def order(self, number):
        """A `fork` frame, and the log that the worker will write to."""
        paths = {}
        reading = {}
        for name in ("stdout", "stderr"):
            paths[name] = os.path.join(self.directory, "%d.%s" % (number, name))
            os.mkfifo(paths[name])
            reading[name] = os.open(paths[name], os.O_RDONLY | os.O_NONBLOCK)
        return {"type": "fork", "worker": number, "nonce": "%032x" % number, **paths}, Log(**reading)

    def fork(self, number=None):
        """A new worker, which has said hello."""
        if number is None:
            number = self._next
        self._next = number + 1
        order, log = self.order(number)
        self.send(order)
        frame = self.frame()
        while frame["type"] == "exited":
            frame = self.frame()
        if frame["type"] != "forked":
            raise AssertionError(frame)
        connection, _ = self.listener.accept()
        worker = Worker(self, number, frame["pid"], connection, log)
        self.workers[number] = worker
        worker.hello = worker.frame()
        return worker

    def wait_for(self, number, timeout=TIMEOUT):
        """How worker `number` ended, as `subprocess` tells it: the code, or the negative signal."""
        deadline = time.monotonic() + timeout
        while number not in self.exited:
            self.frame(max(deadline - time.monotonic(), 0))
        frame = self.exited[number]
        return frame["code"] if frame["signal"] is None else -frame["signal"]


class Worker(Frames):
    """A worker of a launcher."""

    def __init__(self, launcher, number, pid, connection, log):
        super().__init__(connection, log)
        self.launcher = launcher
        self.number = number
        self.pid = pid
        self._interrupted = False
        self._passed_over = collections.deque()

    def wait(self, timeout=TIMEOUT):
        """How the worker ended: the code, or the negative signal."""
        return self.launcher.wait_for(self.number, timeout)

    def expect_serving(self):
        frame = self.frame()
        if frame != {"type": "serving"}:
            raise AssertionError(frame)

    def output(self, name):
        """What the worker has written to `stdout` or `stderr` so far."""
        return self.log.text(name)

    def frame(self, timeout=TIMEOUT):
        """The next frame."""
        # Like the server: a signal just before the handler waits in the kernel is not enough.
        return super().frame(timeout, self._interrupt if self._interrupted else None)

    def _interrupt(self):
        if self.number not in self.launcher.exited:
            os.kill(self.pid, signal.SIGUSR1)

    def call(self, call_id, name, arguments=None, **context):
        self.send(call_frame(call_id, name, arguments, **context))

    def cancel(self, call_id):
        self.send({"type": "cancel", "id": call_id})
        self._interrupt()
        self._interrupted = True

    def answer(self, call_id):
        """The result or error of a call; other frames wait for `frames_before`."""
        while True:
            frame = self.frame()
            if frame["type"] in ("result", "error") and frame["id"] == call_id:
                return frame
            self._passed_over.append(frame)

    def frames_before(self):
        """The frames that `answer` passed over."""
        frames = list(self._passed_over)
        self._passed_over.clear()
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


class WorkerProcess:
    """A launcher and one worker, as one. Use as a context manager."""

    # How it is started, for tests that do not say; a test class may change it.
    START = "fork"

    def __init__(self, files, app="app.py", start=None, **more):
        self.start = start or self.START
        self.launcher = Launcher(files, app, self.start, **more)
        self.application = self.launcher.application
        self.worker = self.launcher.fork() if self.start == "spawn" else None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.launcher.__exit__(*exception)

    def ready(self):
        """The `ready` frame, after which the worker serves."""
        frame = _expect_ready(self.frame())
        if self.worker is None:
            self.worker = self.launcher.fork()
        self.worker.expect_serving()
        return frame

    def output(self, name):
        """What both have written so far."""
        return "".join(one.log.text(name) for one in (self.launcher, self.worker) if one)

    def frame(self, timeout=TIMEOUT):
        """The next frame of the one who loads or has loaded the application."""
        return (self.worker or self.launcher).frame(timeout)

    def wait(self, timeout=TIMEOUT):
        """How the one who loads or has loaded the application ended."""
        return self.worker.wait(timeout) if self.worker else self.launcher.process.wait(timeout)

    def __getattr__(self, name):
        return getattr(self.worker, name)


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


def _expect_ready(frame):
    if frame["type"] != "ready":
        raise AssertionError(frame.get("traceback") or frame)
    return frame


def _refuse(constant):
    raise AssertionError("a frame holds %s" % constant)
