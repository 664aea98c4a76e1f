"""What a worker's standard output and error look like: whose line is whose."""

import unittest

from support import Launcher, WorkerProcess
from test_worker import HEAD

TEXT = HEAD + r"""
import contextvars, io, logging, subprocess
print("while importing")
kept = logging.StreamHandler(sys.stdout)
logger = logging.getLogger("kept")
logger.addHandler(kept)
logger.setLevel("INFO")

@handler("print")
def sync_print():
    print("one", 1, end=" ")
    print("two")
    print("first\nsecond\n\nthird")
    print("to the log", file=sys.stderr)
    sys.stdout.writelines(["a", "b\n", "c\n"])
    logger.info("by a logger")
    print(os.path.join("\udc80", "é"))
    print()

@handler("partial")
async def partial(flush: bool = False):
    print("no end", end="", flush=flush)
    await asyncio.sleep(0)

@handler("around")
def around():
    print("before")
    sys.stdout.buffer.write(b"bytes\n")
    os.write(1, b"written\n")
    subprocess.run(["echo", "child"])
    print("after")

gate = []
@handler("interleave")
async def interleave(name: str):
    print(name, "begins", end=" ")
    gate.append(name)
    while len(gate) < 2:
        await asyncio.sleep(0)
    print("and ends")

@handler("dots")
async def dots(wait_for: int):
    print(".", end="", flush=True)
    gate.append("dots")
    while len(gate) < wait_for:
        await asyncio.sleep(0)
    print(".", end="", flush=True)

@handler("threads")
def threads():
    def work(): print("from a thread")
    for context in (contextvars.copy_context(), contextvars.Context()):
        thread = threading.Thread(target=context.run, args=(work,))
        thread.start()
        thread.join()

@handler("long")
def long(): print("x" * 100_000)

@handler("late")
async def late():
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, lambda: (print("late"), done.set()))
    done = asyncio.Event()
    waiting.append(done)
waiting = []
@handler("await-late")
async def await_late(): await waiting[0].wait()

@handler("replace")
def replace():
    ours = sys.stdout
    with io.StringIO() as mine:
        sys.stdout = mine
        print("hidden")
        assert mine.getvalue() == "hidden\n"
        sys.stdout = ours
    print("shown")

@handler("detach")
def detach():
    sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8")
    print("detached", flush=True)

@handler("attributes")
def attributes():
    found = []
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        assert isinstance(stream, io.TextIOWrapper) and isinstance(stream, io.TextIOBase)
        assert stream.fileno() == descriptor and not stream.isatty() and stream.writable() and not stream.closed
        assert stream.encoding.lower().replace("-", "") == "utf8", stream.encoding
        assert stream.write("") == 0 and stream.write("12\n") == 3
        found.append([stream.name, stream.mode, stream.errors])
        stream.reconfigure(line_buffering=True, errors="replace")
        print("still", file=stream)
        try:
            stream.write(b"bytes")
        except TypeError as error:
            assert "bytes" in str(error)
        else:
            raise AssertionError("it took bytes")
        with stream:
            pass
        print("open", file=stream)
    assert sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__
    return found

@handler("finalizer")
def finalizer():
    class Speaker:
        def __del__(self): print("gone")
        def __str__(self):
            print("asked")
            return "speaker"
    speaker = Speaker()
    print("I am", speaker)
    del speaker

@handler("child")
def child():
    print("parent", end="")
    pid = os.fork()
    if pid == 0:
        print("child")
        os._exit(0)
    os.waitpid(pid, 0)
    print("")

@handler("endless-thread")
def endless_thread():
    contexts = contextvars.Context()
    threading.Thread(target=contexts.run, args=(lambda: print("thread", end=""),)).start()
import atexit
atexit.register(lambda: print("at exit", end=""))
"""


def mark(call_id, *lines):
    return "".join("\x1e%d\x1f%s\n" % (call_id, line) for line in lines)


class Lines(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.launcher = Launcher(TEXT)
        cls.launcher.ready()

    @classmethod
    def tearDownClass(cls):
        cls.launcher.__exit__(None, None, None)

    def setUp(self):
        self.worker = self.launcher.fork()
        self.worker.expect_serving()

    def check(self, name, expected, stream="stdout", **arguments):
        self.worker.result(7, name, arguments)
        self.assertEqual(self.worker.output(stream), expected)

    def test_what_is_printed_during_the_import_is_the_launchers(self):
        self.assertEqual(self.launcher.log.text("stdout"), "while importing\n")
        self.assertEqual(self.worker.output("stdout"), "")

    def test_each_line_of_a_call_is_marked(self):
        lines = ["one 1 two", "first", "second", "", "third", "ab", "c", "by a logger", "\\udc80/é", ""]
        self.check("print", mark(7, *lines))
        self.assertEqual(self.worker.output("stderr"), mark(7, "to the log"))

    def test_a_line_without_an_end_is_ended_with_its_call(self):
        self.check("partial", mark(7, "no end"))
        self.check("partial", mark(7, "no end", "no end"), flush=True)

    def test_what_goes_around_has_no_mark_and_keeps_its_place(self):
        self.check("around", mark(7, "before") + "bytes\nwritten\nchild\n" + mark(7, "after"))

    def test_lines_of_calls_at_the_same_time_do_not_mix(self):
        self.worker.call(1, "interleave", {"name": "a"})
        self.worker.call(2, "interleave", {"name": "b"})
        self.assertEqual({self.worker.frame()["id"] for _ in range(2)}, {1, 2})
        lines = self.worker.output("stdout").split("\n")
        self.assertEqual(sorted(lines), ["", "\x1e1\x1fa begins and ends", "\x1e2\x1fb begins and ends"])

    def test_a_flushed_beginning_is_ended_before_another_call_writes(self):
        self.worker.call(1, "dots", {"wait_for": 2})
        self.worker.call(2, "dots", {"wait_for": 2})
        self.assertEqual({self.worker.frame()["id"] for _ in range(2)}, {1, 2})
        lines = self.worker.output("stdout").split("\n")
        self.assertTrue({"", "\x1e1\x1f.", "\x1e2\x1f."} >= {line.replace("..", ".") for line in lines}, lines)
        self.assertGreater(len(lines), 3)

    def test_a_flushed_beginning_goes_on_as_one_line(self):
        self.check("dots", mark(7, ".."), wait_for=1)

    def test_threads_have_the_mark_of_their_context(self):
        self.check("threads", mark(7, "from a thread") + "from a thread\n")

    def test_long_lines_are_whole(self):
        self.check("long", mark(7, "x" * 100_000))

    def test_what_comes_after_a_call_keeps_its_mark(self):
        self.worker.result(1, "late")
        self.check("await-late", mark(1, "late"))

    def test_an_application_may_replace_the_streams(self):
        self.check("replace", mark(7, "shown"))
        self.check("detach", mark(7, "shown") + "detached\n")
        # Nothing is left of ours to end a line with.
        self.worker.result(8, "dots", {"wait_for": 0})

    def test_they_are_what_code_expects_of_text_streams(self):
        found = self.worker.result(7, "attributes")
        self.assertEqual(found, [[name, "w", "backslashreplace"] for name in ("<stdout>", "<stderr>")])
        for stream in ("stdout", "stderr"):
            self.assertEqual(self.worker.output(stream), mark(7, "12", "still", "open"))

    def test_printing_while_printing_is_fine(self):
        self.check("finalizer", mark(7, "I am asked", "speaker", "gone"))

    def test_a_forked_child_does_not_repeat_its_parent(self):
        self.check("child", mark(7, "child", "parent"))

    def test_what_has_no_end_at_the_end_is_written_all_the_same(self):
        self.worker.result(7, "endless-thread")
        self.worker.send({"type": "shutdown"})
        self.assertEqual(self.worker.wait(), 0)
        self.assertEqual(self.worker.output("stdout"), "thread\nat exit\n")


class Spawned(unittest.TestCase):
    def test_lines_are_marked_too(self):
        with WorkerProcess(TEXT, start="spawn") as worker:
            worker.ready()
            worker.result(7, "partial")
            self.assertEqual(worker.output("stdout"), "while importing\n" + mark(7, "no end"))


if __name__ == "__main__":
    unittest.main()
