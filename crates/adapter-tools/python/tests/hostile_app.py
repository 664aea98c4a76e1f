"""Handlers that do what no handler should. Each is called by `test_hostile`, and by tests of the server."""

import asyncio
import ctypes
import datetime
import gc
import io
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import owlclaw_worker
from owlclaw import OwlClaw

app = OwlClaw("hostile")
app.mount_skills("skills")

FORGED = '{"jsonrpc":"2.0","id":1,"result":{"forged":true}}'

libc = ctypes.CDLL(None)
libc_with_gil = ctypes.PyDLL(None)


@app.handler("fine")
def fine(value: int = 1):
    return {"value": value}


@app.handler("fine-async")
async def fine_async(value: int = 1):
    await asyncio.sleep(0)
    return {"value": value}


# Output


@app.handler("print-forged-frames")
def print_forged_frames():
    frame = b'{"type":"result","id":1,"value":"forged"}'
    print(FORGED)
    print("\x1e999\x1fforged mark")
    sys.stdout.write("Content-Length: 20\r\n\r\n")
    sys.stdout.buffer.write(len(frame).to_bytes(4, "big") + frame + b"\n")
    os.write(1, b"\x00\xff\xfe raw bytes \x80\n")
    os.write(2, b"\x1e")
    os.system("echo from a child; echo from a child >&2")
    subprocess.run([sys.executable, "-c", "print('from python')"])
    return "quiet"


@app.handler("print-a-lot")
def print_a_lot(lines: int = 20000):
    for number in range(lines):
        print("line", number, "x" * 50)
    return "quiet"


@app.handler("replace-stdout")
def replace_stdout():
    sys.stdout = io.StringIO()
    sys.stderr = None
    print("into nothing")
    return "quiet"


@app.handler("close-stdout")
def close_stdout():
    sys.stdout.close()
    sys.stderr.close()
    os.close(0)
    os.close(1)
    os.close(2)
    return "quiet"


# Time and memory


@app.handler("sleep")
def sleep():
    owlclaw_worker.progress(0)
    time.sleep(10**6)


@app.handler("loop")
def loop_for_ever():
    owlclaw_worker.progress(0)
    while True:
        pass


@app.handler("swallow-everything")
def swallow_everything():
    owlclaw_worker.progress(0)
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass


@app.handler("stuck-in-c")
def stuck_in_c():
    owlclaw_worker.progress(0)
    sum(range(10**12))


def lock_twice(library):
    """Wait for ever in C, whatever signals come."""
    mutex = ctypes.create_string_buffer(128)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


@app.handler("stuck-without-the-lock")
def stuck_without_the_lock():
    owlclaw_worker.progress(0)
    lock_twice(libc)


@app.handler("stuck-with-the-lock")
def stuck_with_the_lock():
    owlclaw_worker.progress(0)
    lock_twice(libc_with_gil)


@app.handler("block-the-loop")
async def block_the_loop():
    owlclaw_worker.progress(0)
    time.sleep(10**6)


@app.handler("take-all-memory")
def take_all_memory():
    taken = []
    while True:
        taken.append(bytearray(16 * 1024 * 1024))


@app.handler("recurse")
def recurse():
    return recurse()


@app.handler("recurse-high")
def recurse_high():
    sys.setrecursionlimit(10**9)
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested


# Crashes


@app.handler("exit")
def exit_now(code: int = 3):
    os._exit(code)


@app.handler("crash")
def crash():
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(10)


@app.handler("crash-async")
async def crash_async():
    await asyncio.sleep(0)
    libc.abort()


@app.handler("kill-group")
def kill_group():
    os.killpg(0, signal.SIGKILL)


@app.handler("raise")
def raise_it(error: str):
    raise {
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "GeneratorExit": GeneratorExit(),
        "StopIteration": StopIteration(1),
        "CancelledError": asyncio.CancelledError(),
        "unprintable": Unprintable(),
    }[error]


@app.handler("raise-async")
async def raise_async(error: str):
    await asyncio.sleep(0)
    raise_it(error)


class Unprintable(Exception):
    def __str__(self):
        raise SystemExit("no text")

    __repr__ = __str__


class Leaver:
    """Raises when it is thrown away."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        raise RuntimeError("from a finalizer")


@app.handler("raise-in-finalizer")
def raise_in_finalizer():
    Leaver()
    gc.collect()
    return "fine"


class Sleeper:
    def __del__(self):
        owlclaw_worker.progress(0)
        time.sleep(10**6)


@app.handler("sleep-in-finalizer")
def sleep_in_finalizer():
    sleeper = Sleeper()
    del sleeper
    time.sleep(10**6)


# Processes


@app.handler("close-all-descriptors")
def close_all_descriptors():
    os.closerange(3, 4096)
    return "mute"


@app.handler("close-all-descriptors-async")
async def close_all_descriptors_async():
    os.closerange(3, 4096)
    await asyncio.sleep(0.01)
    return "mute"


@app.handler("replace-all-descriptors")
def replace_all_descriptors():
    with tempfile.TemporaryFile() as file:
        for descriptor in range(3, 64):
            if descriptor != file.fileno():
                os.dup2(file.fileno(), descriptor)
    return "mute"


@app.handler("fork-and-return")
def fork_and_return():
    return "parent" if os.fork() else "child"


@app.handler("fork-and-return-async")
async def fork_and_return_async():
    child = os.fork()
    await asyncio.sleep(0)
    return "parent" if child else "child"


@app.handler("fork-and-wait")
async def fork_and_wait():
    """Both go on for as long as they can; the child must not touch what its parent is doing."""
    future = asyncio.get_running_loop().create_future()
    child = os.fork()
    if child == 0:
        owlclaw_worker.progress(13)
        await future
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        await asyncio.sleep(0.001)
    return "parent"


@app.handler("fork-in-c")
def fork_in_c():
    # Python hears nothing of it.
    return "parent" if libc_with_gil.fork() else "child"


@app.handler("fork-in-c-and-raise")
async def fork_in_c_and_raise():
    if not libc_with_gil.fork():
        raise ValueError("child")
    await asyncio.sleep(0.05)
    return "parent"


@app.handler("pool")
def pool():
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return workers.map(abs, [-1, -2])


@app.handler("leave-a-daemon")
def leave_a_daemon():
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return process.pid


@app.handler("fork-bomb")
def fork_bomb(count: int = 20):
    return [subprocess.Popen(["sleep", "1000"]).pid for _ in range(count)]


# Results


def _cycle():
    value = {}
    value["self"] = value
    return value


RESULTS = {
    "nan": lambda: {"value": math.nan},
    "cycle": _cycle,
    "large": lambda: "x" * 50_000_000,
    "bytes": lambda: b"\xff\xfe",
    "datetime": lambda: datetime.datetime(2026, 2, 28, 12, 30),
    "generator": lambda: (number for number in range(3)),
    "surrogate": lambda: "\udc80",
    "class": lambda: Leaver,
    "keys": lambda: {(1, 2): 3},
    "long": lambda: 10**5000,
}


@app.handler("return")
def return_it(kind: str):
    return RESULTS[kind]()


class Property:
    @property
    def value(self):
        os.write(2, b"read\n")
        raise SystemExit(9)

    def model_dump(self, **_):
        return self.value


@app.handler("return-what-exits")
def return_what_exits():
    return Property()


# The process's state


@app.handler("change-everything")
def change_everything():
    os.chdir("/")
    os.umask(0o777)
    sys.path.clear()
    sys.argv[:] = []
    os.environ.clear()
    sys.setrecursionlimit(200)
    sys.setswitchinterval(10)
    gc.disable()
    warnings.simplefilter("error")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.set_event_loop_policy(None)
        asyncio.set_event_loop(None)
    sys.modules.pop("json", None)
    sys.excepthook = sys.unraisablehook = None
    threading.stack_size(65536)
    return "changed"


@app.handler("start-threads")
def start_threads():
    def work():
        for _ in range(50):
            print("from a thread")
            owlclaw_worker.progress(1)
            time.sleep(0.001)
        while True:
            time.sleep(1000)

    for _ in range(5):
        threading.Thread(target=work).start()
    return "started"


@app.handler("never-await")
async def never_await():
    fine_async()
    return "fine"


@app.handler("leave-tasks")
async def leave_tasks():
    async def later(error):
        raise error

    for error in (ValueError("left"), SystemExit(5), KeyboardInterrupt()):
        asyncio.ensure_future(later(error))
    await asyncio.sleep(0)
    return "fine"


@app.handler("stop-the-loop")
def stop_the_loop():
    asyncio.get_running_loop().stop()
    return "fine"


@app.handler("close-the-loop")
def close_the_loop():
    loop = asyncio.get_running_loop()
    loop.stop()
    loop.call_soon(loop.close)
    return "fine"


@app.handler("break-the-loop")
async def break_the_loop():
    loop = asyncio.get_running_loop()
    loop._selector.close()
    await asyncio.sleep(0)
    return "mute"


@app.handler("run-a-loop")
def run_a_loop():
    return asyncio.run(fine_async())


@app.handler("cancel-everything")
async def cancel_everything():
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)
    return "unreachable"
