"""The launcher: what it forks, what it says about it, and what it leaves behind."""

import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

from support import TIMEOUT, Ended, Launcher, WorkerProcess
from test_worker import HEAD

linux_only = unittest.skipUnless(sys.platform.startswith("linux"), "Linux does this")

STUCK = HEAD + """
@handler("stuck")
def stuck():
    owlclaw_worker.progress(0)
    sum(range(10**12))
"""


def is_running(pid):
    """Whether a process is there and no zombie."""
    try:
        stat = pathlib.Path("/proc/%d/stat" % pid).read_bytes()
    except FileNotFoundError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


class Processes(unittest.TestCase):
    def wait_until(self, condition):
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def test_workers_share_one_import(self):
        text = HEAD + """
imported_by = os.getpid()
calls = []
@handler("who")
def who():
    calls.append(1)
    return [imported_by, os.getpid(), os.getppid(), os.getpgid(0), len(calls)]
"""
        with Launcher(text) as launcher:
            launcher.ready()
            workers = [launcher.fork() for _ in range(3)]
            for worker in workers:
                worker.expect_serving()
            for worker in workers:
                parent = launcher.process.pid
                self.assertEqual(worker.result(1, "who"), [parent, worker.pid, parent, worker.pid, 1])

    def test_each_spawned_worker_imports_for_itself(self):
        text = HEAD + "imported_by = os.getpid()\nhandler('who')(lambda: imported_by)\n"
        with Launcher(text, start="spawn") as launcher:
            for _ in range(2):
                worker = launcher.fork()
                self.assertEqual([tool["name"] for tool in worker.frame()["tools"]], ["who"])
                worker.expect_serving()
                self.assertEqual(worker.result(1, "who"), worker.pid)

    def test_a_spawned_worker_that_cannot_load_says_why_and_leaves_the_launcher_alone(self):
        with Launcher("import missing\n", start="spawn") as launcher:
            for number in range(2):
                worker = launcher.fork()
                frame = worker.frame()
                self.assertEqual(frame["type"], "fatal")
                self.assertIn("missing", frame["message"])
                self.assertEqual(frame["files"], [os.path.realpath(launcher.application.root / "app.py")])
                self.assertEqual(worker.wait(), 1)

    def test_the_end_of_a_worker_is_told_and_its_id_is_kept_until_it_is_reaped(self):
        text = HEAD + "handler('end')(lambda code: os._exit(code))\n"
        with Launcher(text) as launcher:
            launcher.ready()
            first, second = launcher.fork(), launcher.fork()
            first.call(1, "end", {"code": 7})
            self.assertEqual(first.wait(), 7)
            frame = launcher.exited[0]
            self.assertEqual(frame, {"type": "exited", "worker": 0, "pid": first.pid, "code": 7, "signal": None})
            os.kill(first.pid, 0)
            os.kill(second.pid, signal.SIGKILL)
            self.assertEqual(second.wait(), -signal.SIGKILL)
            launcher.send({"type": "reap", "worker": 0}, {"type": "ping"})
            self.assertEqual(launcher.frame(), {"type": "pong"})
            self.assertRaises(ProcessLookupError, os.kill, first.pid, 0)
            os.kill(second.pid, 0)

    def test_a_worker_may_be_reaped_in_advance(self):
        with Launcher(HEAD) as launcher:
            launcher.ready()
            worker = launcher.fork()
            launcher.send({"type": "reap", "worker": 0}, {"type": "reap", "worker": 5})
            worker.expect_serving()
            worker.send({"type": "shutdown"})
            self.assertEqual(worker.wait(), 0)
            self.wait_until(lambda: not os.path.exists("/proc/%d" % worker.pid))

    def test_it_ends_once_all_its_workers_are_reaped(self):
        with Launcher(HEAD + "import atexit\natexit.register(print, 'at exit')\n") as launcher:
            launcher.ready()
            worker = launcher.fork()
            launcher.send({"type": "shutdown"}, {"type": "fork", "worker": 1, "nonce": "", "stdout": "", "stderr": ""})
            self.assertEqual(launcher.frame()["type"], "fork_failed")
            worker.expect_serving()
            worker.send({"type": "shutdown"})
            self.assertEqual(worker.wait(), 0)
            launcher.send({"type": "reap", "worker": 0})
            self.assertRaises(Ended, launcher.frame)
            self.assertEqual(launcher.process.wait(TIMEOUT), 0)
            self.assertEqual(launcher.log.text("stdout"), "at exit\n")

    def test_a_worker_whose_log_nobody_reads_ends(self):
        with Launcher(HEAD) as launcher:
            launcher.ready()
            order, log = launcher.order(0)
            log.close()
            launcher.send(order)
            self.assertEqual(launcher.frame()["type"], "forked")
            self.assertEqual(launcher.wait_for(0), 0)

    def test_a_server_that_breaks_the_protocol_is_left(self):
        for payload in (b"\xff\xff\xff\xff", b"\0\0\0\2xx", b'\0\0\0\x0f{"type":"fork"}'):
            with self.subTest(payload=payload), Launcher(HEAD) as launcher:
                launcher.ready()
                worker = launcher.fork()
                launcher.connection.sendall(payload)
                self.assertEqual(launcher.process.wait(TIMEOUT), 70)
                self.assertFalse(is_running(worker.pid))
                self.assertIn("broke the worker protocol", launcher.log.text("stderr"))

    def test_terminals_do_not_end_it(self):
        with Launcher(HEAD) as launcher:
            launcher.ready()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
                os.kill(launcher.process.pid, number)
            launcher.fork().expect_serving()


@linux_only
class NothingIsLeft(unittest.TestCase):
    wait_until = Processes.wait_until

    TEXT = STUCK + """
import subprocess
@handler("leave")
def leave():
    # A child in the group, and one that has left for a session of its own and lost its parent.
    child = subprocess.Popen(["sleep", "1000"])
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, b"%d" % os.getpid())
            os.execvp("sleep", ["sleep", "1000"])
        os._exit(0)
    os.wait()
    return [child.pid, int(os.read(reading, 20))]
"""

    def left_behind(self, launcher):
        launcher.ready()
        worker = launcher.fork()
        worker.expect_serving()
        left = worker.result(1, "leave")
        for pid in left:
            self.assertTrue(is_running(pid))
        return worker, left

    def test_of_workers_when_the_server_goes(self):
        with Launcher(self.TEXT) as launcher:
            worker, left = self.left_behind(launcher)
            stuck = launcher.fork()
            stuck.expect_serving()
            stuck.call(1, "stuck")
            stuck.frame()
            launcher.connection.close()
            self.assertEqual(launcher.process.wait(TIMEOUT), 0)
            for pid in (worker.pid, stuck.pid, *left):
                self.assertFalse(is_running(pid), pid)

    def test_of_what_handlers_started_when_all_is_over(self):
        with Launcher(self.TEXT) as launcher:
            worker, (child, orphan) = self.left_behind(launcher)
            worker.send({"type": "shutdown"})
            self.assertEqual(worker.wait(), 0)
            # The group outlives its leader, whose id is still taken; this is for the server to do.
            os.killpg(worker.pid, signal.SIGKILL)
            launcher.send({"type": "reap", "worker": 0}, {"type": "shutdown"})
            self.assertEqual(launcher.process.wait(TIMEOUT), 0)
            for pid in (child, orphan):
                self.assertFalse(is_running(pid), pid)

    def test_of_orphans_that_have_ended(self):
        with Launcher(self.TEXT) as launcher:
            _, (_, orphan) = self.left_behind(launcher)
            os.kill(orphan, signal.SIGKILL)
            self.wait_until(lambda: not os.path.exists("/proc/%d" % orphan))

    def test_of_workers_stuck_in_c_when_the_launcher_is_killed(self):
        with WorkerProcess(STUCK) as worker:
            worker.ready()
            worker.call(1, "stuck")
            worker.frame()
            worker.launcher.process.kill()
            self.assertRaises(Ended, worker.frame, 10)

    def test_of_an_import_when_the_server_goes(self):
        for name, line in (("python", "while True: pass"), ("c", "sum(range(10**12))")):
            for start in ("fork", "spawn"):
                with self.subTest(name=name, start=start):
                    with WorkerProcess("print('importing')\n%s\n" % line, start=start) as worker:
                        (worker.worker or worker.launcher).log.wait_for("stdout", "importing")
                        worker.launcher.connection.close()
                        worker.launcher.process.wait(10)

    def test_of_a_directory_made_during_the_import(self):
        text = HEAD + "import tempfile\nkept = tempfile.TemporaryDirectory()\nhandler('where')(lambda: kept.name)\n"
        with Launcher(text) as launcher:
            launcher.ready()
            worker = launcher.fork()
            worker.expect_serving()
            directory = worker.result(1, "where")
            worker.send({"type": "shutdown"})
            self.assertEqual(worker.wait(), 0)
            self.assertTrue(os.path.isdir(directory))
            launcher.send({"type": "reap", "worker": 0}, {"type": "shutdown"})
            self.assertEqual(launcher.process.wait(TIMEOUT), 0)
            self.assertFalse(os.path.exists(directory))


class Memory(unittest.TestCase):
    TEXT = HEAD + """
@handler("fill")
def fill():
    rows = []
    while True:
        rows.append("x" * 10_000_000)
@handler("fine")
def fine(): return "fine"
"""

    @linux_only
    def test_a_handler_that_takes_all_gets_an_error(self):
        for start in ("fork", "spawn"):
            with self.subTest(start=start), WorkerProcess(self.TEXT, start=start, memory=1 << 30) as worker:
                worker.ready()
                for call_id in range(2):
                    self.assertEqual(worker.error(call_id, "fill")["exception"], "MemoryError")
                self.assertEqual(worker.result(5, "fine"), "fine")

    @linux_only
    def test_a_limit_that_leaves_nothing_is_refused(self):
        with Launcher(HEAD, memory=1 << 20) as launcher:
            launcher.ready()
            worker = launcher.fork()
            frame = worker.frame()
            self.assertEqual(frame["type"], "fatal")
            self.assertIn("the limit is 1048576 bytes", frame["message"])
            self.assertEqual(worker.wait(), 1)


class Files(unittest.TestCase):
    @linux_only
    def test_calls_wait_for_a_thread_where_no_more_can_be_started(self):
        text = HEAD + """
import asyncio, resource, threading
OPEN = threading.Event()

@app.handler("waits")
def waits():
    # Arenas of the C library are made where several threads allocate at once.
    kept = [bytearray(20000) for _ in range(50)]
    return OPEN.wait(60) and len(kept)

@app.handler("opens")
async def opens():
    OPEN.set()

@app.handler("tightens")
async def tightens():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.getrlimit(resource.RLIMIT_AS)[1]))
"""
        with WorkerProcess(text, memory=384 << 20, threads=64) as worker:
            worker.ready()
            for number in range(1, 61):
                worker.call(number, "waits")
            worker.call(100, "opens")
            frames = [worker.frame() for _ in range(61)]
            self.assertEqual([one for one in frames if one["type"] != "result"], [])
            self.assertIn("further calls wait for one", worker.output("stderr"))
        with WorkerProcess(text, threads=64) as worker:
            worker.ready()
            worker.result(1, "tightens")
            self.assertEqual(worker.error(2, "waits")["kind"], "busy")

    def test_sources_of_the_application_are_named_and_installed_packages_are_not(self):
        files = {
            "app.py": "import sys\nsys.path.append('venv/lib/site-packages')\nimport ours.inner, theirs\n" + HEAD,
            "ours/__init__.py": "",
            "ours/inner.py": "",
            "ours/unused.py": "",
            "venv/lib/site-packages/theirs.py": "",
        }
        with Launcher(files) as launcher:
            root = launcher.application.root
            expected = [str(root / name) for name in ("app.py", "ours/__init__.py", "ours/inner.py")]
            self.assertEqual(launcher.ready()["files"], expected)

    def test_a_file_with_a_mistake_is_named(self):
        with Launcher({"app.py": "import broken\n", "broken.py": "def f(:\n"}) as launcher:
            root = launcher.application.root
            frame = launcher.frame()
            self.assertEqual(frame["type"], "fatal")
            self.assertEqual(frame["files"], [str(root / name) for name in ("app.py", "broken.py")])
            self.assertEqual(launcher.process.wait(TIMEOUT), 1)


class Forkable(unittest.TestCase):
    def reasons(self, text):
        with Launcher(HEAD + text) as launcher:
            reasons = launcher.ready()["cannot_fork"]
            # It is for the server to decide.
            launcher.fork().expect_serving()
            return [reason.replace(str(launcher.application.root), "ROOT") for reason in reasons]

    def test_an_ordinary_application_can_be_forked(self):
        text = """
import asyncio, concurrent.futures, logging, multiprocessing, random, sqlite3, subprocess, uuid
lock = asyncio.Lock()
log = open("app.log", "a")
subprocess.run(["true"])
with concurrent.futures.ThreadPoolExecutor() as pool: pool.submit(abs, 1).result()
sqlite3.connect("here.db").close()
asyncio.run(asyncio.sleep(0))
null = open(os.devnull, "w")
"""
        self.assertEqual(self.reasons(text), [])

    def test_what_stands_against_it_is_named(self):
        rows = [
            ("kept = open('rows.csv', 'w')", "the application opened ROOT/rows.csv while it was imported"),
            ("import sqlite3; kept = sqlite3.connect('here.db'); kept.execute('create table a (b)')", "ROOT/here.db"),
            ("threading.Thread(target=time.sleep, args=(1000,), name='poller', daemon=True).start()", "the thread 'poller'"),
            ("import subprocess; kept = subprocess.Popen(['sleep', '1000'])", "started the process sleep ("),
            ("import signal; signal.setitimer(signal.ITIMER_REAL, 1000)", "SIGALRM"),
            ("async def later(): pass\nkept = asyncio.get_event_loop().create_task(later())", "the task 'later'"),
            ("import socket; kept = socket.socket(); kept.bind(('127.0.0.1', 0)); kept.listen()", "a socket at 127.0.0.1:"),
            ("import socket\na = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()\n"
             "kept = socket.create_connection(a.getsockname())", "a connection to 127.0.0.1:"),
            ("kept = os.pipe()", "opened a pipe"),
            ("kept = asyncio.new_event_loop()", "an eventpoll descriptor"),
        ]
        for text, expected in rows:
            with self.subTest(expected=expected):
                reasons = self.reasons(text)
                self.assertTrue(any(expected in reason for reason in reasons), reasons)

    def test_long_lists_are_cut(self):
        reasons = self.reasons("kept = [open('%d' % n, 'w') for n in range(20)]")
        self.assertEqual(len(reasons), 6)
        self.assertIn("opened 15 more while", reasons[-1])

    @linux_only
    def test_threads_of_c_libraries_are_counted(self):
        text = """
import ctypes
class Attribute(ctypes.Structure): _fields_ = [("x", ctypes.c_char * 64)]
library = ctypes.CDLL(None)
identity = ctypes.c_ulong()
assert library.pthread_create(ctypes.byref(identity), None, library.pause, None) == 0
"""
        self.assertEqual(
            self.reasons(text),
            ["a thread not of Python's (such as gRPC has) was started while the application was imported, and still runs"],
        )


if __name__ == "__main__":
    unittest.main()
