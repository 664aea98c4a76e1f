"""The worker as a process, spoken to as the server speaks to it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from support import NONCE, PYTHON_DIRECTORY, TIMEOUT, Ended, Launcher, WorkerProcess, call_frame

HEAD = """
import asyncio, os, sys, threading, time
import owlclaw_worker
from owlclaw import OwlClaw
app = OwlClaw("test")
app.mount_skills("skills")
handler = app.handler
"""


class Calls(unittest.TestCase):
    maxDiff = None

    def test_the_first_frame_repeats_the_nonce(self):
        with Launcher(HEAD) as launcher:
            about = {"type": "hello", "protocol": 2}
            expected = {**about, "nonce": NONCE, "pid": launcher.process.pid, "role": "launcher"}
            self.assertEqual(launcher.hello, expected)
            launcher.ready()
            worker = launcher.fork(7)
            expected = {**about, "nonce": "%032x" % 7, "pid": worker.pid, "role": "worker", "worker": 7}
            self.assertEqual(worker.hello, expected)

    def test_results_come_back_from_both_kinds_of_handler(self):
        text = HEAD + """
@handler("sync")
def sync(a: int = 1): return {"a": a}
@handler("async")
async def asynchronous(a: int = 1):
    await asyncio.sleep(0)
    return {"a": a}
@handler("hidden")
def hidden(a: int = 1): return asynchronous(a)
@handler("value")
def value(session): return session["value"]
"""
        with WorkerProcess(text) as worker:
            kinds = {tool["name"]: tool["async"] for tool in worker.ready()["tools"]}
            self.assertEqual(kinds, {"sync": False, "async": True, "hidden": False, "value": False})
            for call_id, name in enumerate(("sync", "async", "hidden")):
                self.assertEqual(worker.result(call_id, name, {"a": 2.0}), {"a": 2})
            for call_id, value in enumerate([None, 0, "", "é😀", [], {}, {"value": [1.5, True, None]}], 10):
                self.assertEqual(worker.result(call_id, "value", {"value": value}), value)

    def test_what_a_handler_prints_does_not_touch_the_protocol(self):
        text = HEAD + r"""
@handler("noisy")
def noisy():
    print('{"type":"result","id":1,"value":"forged"}')
    os.write(1, b'\x00\x00\x00\x02{}raw bytes\xff')
    os.system("echo from a child")
    print("\udc80 é", file=sys.stdout)
    sys.stderr.write("to the log\n")
    assert sys.stdin.read() == ""
    return "quiet"
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            self.assertEqual(worker.result(1, "noisy"), "quiet")
            for expected in ("forged", "raw bytes", "from a child", "\\udc80"):
                self.assertIn(expected, worker.output("stdout"))
            self.assertIn("to the log", worker.output("stderr"))

    def test_exceptions_are_answers(self):
        text = HEAD + """
class Refused(Exception): pass
def deeper():
    raise Refused("no stock")
@handler("raises")
def raises():
    deeper()
@handler("raises-later")
async def raises_later():
    await asyncio.sleep(0)
    try:
        deeper()
    except Refused as error:
        raise ValueError("é") from error
@handler("exits")
def exits(): sys.exit(3)
@handler("exits-later")
async def exits_later(): raise SystemExit("bye")
@handler("interrupts")
async def interrupts(): raise KeyboardInterrupt
@handler("gives-up")
async def gives_up(): raise asyncio.CancelledError
@handler("overflows")
def overflows(): return overflows()
@handler("background")
async def background():
    async def end(): sys.exit(5)
    asyncio.ensure_future(end())
    await asyncio.sleep(0)
    return "still here"
@handler("stops")
async def stops():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return "still here"
@handler("fine")
def fine(): return "fine"
"""
        rows = [
            ("raises", "Refused", "no stock"),
            ("raises-later", "ValueError", "é"),
            ("exits", "SystemExit", "3"),
            ("exits-later", "SystemExit", "bye"),
            ("interrupts", "KeyboardInterrupt", ""),
            ("gives-up", "CancelledError", ""),
            ("overflows", "RecursionError", "maximum recursion depth exceeded"),
        ]
        with WorkerProcess(text) as worker:
            worker.ready()
            for call_id, (name, exception, message) in enumerate(rows):
                with self.subTest(name=name):
                    frame = worker.error(call_id, name)
                    self.assertEqual((frame["kind"], frame["exception"]), ("raised", exception))
                    self.assertTrue(frame["message"].startswith(message), frame["message"])
                    self.assertIn("app.py", frame["traceback"])
                    self.assertNotIn("owlclaw_worker", frame["traceback"])
            self.assertIn("no stock", worker.error(20, "raises-later")["traceback"])
            self.assertEqual(worker.result(21, "background"), "still here")
            self.assertEqual(worker.result(22, "stops"), "still here")
            self.assertEqual(worker.result(30, "fine"), "fine")

    def test_results_that_cannot_be_sent_are_errors_of_their_call(self):
        text = HEAD + r"""
def cycle():
    value = {}
    value["self"] = value
    return value
async def coroutine(): ...
kinds = {
    "cycle": cycle,
    "bytes": lambda: {"b": b"\xff"},
    "surrogate": lambda: "\udc80",
    "deep": lambda: __import__("functools").reduce(lambda value, _: [value], range(500), 1),
    "object": object,
    "large": lambda: "x" * 50_000_000,
}
@handler("give")
def give(kind: str): return kinds[kind]()
"""
        rows = [
            ("cycle", "unserializable", "/self contains itself"),
            ("bytes", "unserializable", "/b is bytes that are not UTF-8"),
            ("surrogate", "unserializable", "the value holds a lone surrogate"),
            ("deep", "unserializable", "nested more than 100 levels"),
            ("object", "unserializable", "the value is a object"),
            ("large", "too_large", "50000035 bytes"),
        ]
        with WorkerProcess(text) as worker:
            worker.ready()
            for call_id, (kind, expected, message) in enumerate(rows):
                with self.subTest(kind=kind):
                    frame = worker.error(call_id, "give", {"kind": kind})
                    self.assertEqual(frame["kind"], expected)
                    self.assertIn(message, frame["message"])

    def test_results_up_to_the_bound_are_sent(self):
        text = HEAD + "handler('large')(lambda size: 'x' * size)\n"
        with WorkerProcess(text) as worker:
            worker.ready()
            size = 16 * 1024 * 1024 - len('{"type":"result","id":1,"value":""}')
            self.assertEqual(len(worker.result(1, "large", {"size": size})), size)
            self.assertEqual(worker.error(2, "large", {"size": size + 1})["kind"], "too_large")

    def test_arguments_that_do_not_suit_are_told_apart_from_failures(self):
        text = HEAD + """
import datetime
@handler("plan")
def plan(day: datetime.date): return day
@handler("many")
def many(days: list[datetime.date], other: datetime.date): return days
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            self.assertEqual(worker.result(1, "plan", {"day": "2026-02-28"}), "2026-02-28")
            frame = worker.error(2, "plan", {"day": "2026-02-30"})
            self.assertEqual((frame["kind"], frame["message"]), ("invalid_arguments", "/day: '2026-02-30' is no date"))
            self.assertEqual(frame["violations"], [{"pointer": "/day", "message": "'2026-02-30' is no date"}])
            frame = worker.error(5, "many", {"days": ["x"] * 2, "other": "y"})
            self.assertEqual([one["pointer"] for one in frame["violations"]], ["/days/0", "/other"])
            deep = "[" * 200000 + "]" * 200000
            worker.send_raw(('{"type":"call","id":3,"name":"plan","arguments":{"day":%s},"ctx":{}}' % deep).encode())
            self.assertEqual(worker.answer(3)["kind"], "invalid_arguments")
            self.assertEqual(worker.result(4, "plan", {"day": "2026-02-28"}), "2026-02-28")

    def test_unknown_tools_and_states_are_errors(self):
        with WorkerProcess(HEAD) as worker:
            worker.ready()
            self.assertEqual(worker.error(1, "nothing")["kind"], "no_such_tool")
            worker.send({"type": "state", "id": 2, "name": "nothing", "ctx": {}})
            self.assertEqual(worker.answer(2)["kind"], "no_such_tool")

    def test_states_are_asked(self):
        text = HEAD + """
@app.state("sync")
def sync(): return {"a": 1}
@app.state("async")
async def asynchronous():
    await asyncio.sleep(0)
    return {"a": 2}
@app.state("wrong")
def wrong(): return [1]
"""
        with WorkerProcess(text) as worker:
            states = {state["name"]: state["async"] for state in worker.ready()["states"]}
            self.assertEqual(list(states.items()), [("async", True), ("sync", False), ("wrong", False)])
            for call_id, (name, value) in enumerate([("sync", {"a": 1}), ("async", {"a": 2})]):
                worker.send({"type": "state", "id": call_id, "name": name, "ctx": {}})
                self.assertEqual(worker.answer(call_id)["value"], value)
            worker.send({"type": "state", "id": 9, "name": "wrong", "ctx": {}})
            self.assertIn("returned a list, not a dict", worker.answer(9)["message"])

    def test_a_session_without_arguments_says_who_calls(self):
        text = HEAD + "@handler('who')\nasync def who(session): return session\n"
        with WorkerProcess(text) as worker:
            worker.ready()
            value = worker.result(1, "who", client_id="me")
            self.assertEqual((value["agent_id"], value["run_id"], value["trigger"]), ("me", "request-1", "mcp"))

    def test_asynchronous_calls_run_at_the_same_time(self):
        text = HEAD + """
inside = 0
everybody = asyncio.Event() if sys.version_info >= (3, 10) else None
@handler("meet")
async def meet(count: int):
    global inside, everybody
    everybody = everybody or asyncio.Event()
    inside += 1
    if inside == count:
        everybody.set()
    await everybody.wait()
    return inside
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            # None can return before all have begun.
            worker.send(*(call_frame(call_id, "meet", {"count": 50}) for call_id in range(50)))
            answers = [worker.frame() for _ in range(50)]
            self.assertEqual({frame["id"] for frame in answers}, set(range(50)))
            self.assertEqual({frame["value"] for frame in answers}, {50})

    def test_synchronous_calls_wait_for_each_other(self):
        text = HEAD + """
@handler("count")
def count(to: int):
    assert threading.current_thread() is threading.main_thread()
    assert asyncio.get_running_loop()
    return to
@handler("later")
async def later(to: int): return to
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            names = ["count", "later"] * 20
            worker.send(*(call_frame(i, name, {"to": i}) for i, name in enumerate(names)), {"type": "ping"})
            frames = [worker.frame() for _ in range(41)]
            self.assertEqual(sorted(f["value"] for f in frames if f["type"] == "result"), list(range(40)))
            self.assertEqual([f for f in frames if f["type"] != "result"], [{"type": "pong"}])

    def test_a_synchronous_call_does_not_hold_up_earlier_answers(self):
        with WorkerProcess(Cancelling.TEXT) as worker:
            worker.ready()
            worker.call(1, "wait")
            worker.frame()
            worker.send(call_frame(2, "nothing"), call_frame(3, "sleep"))
            self.assertEqual(worker.frame()["kind"], "no_such_tool")

    def test_context_variables_do_not_leak_between_calls(self):
        text = HEAD + """
import contextvars
seen = contextvars.ContextVar("seen", default=None)
@handler("sync")
def sync():
    before = seen.get()
    seen.set("sync")
    return before
@handler("async")
async def asynchronous():
    before = seen.get()
    seen.set("async")
    return before
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            for call_id in range(4):
                self.assertIsNone(worker.result(call_id, ("sync", "async")[call_id % 2]))

    def test_a_large_backlog_is_written_completely(self):
        text = HEAD + """
@handler("much")
async def much(n: int): return [n, "x" * 1_000_000]
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            worker.send(*(call_frame(i, "much", {"n": i}) for i in range(60)))
            time.sleep(0.3)  # Lets the backlog form; nothing depends on it.
            answers = [worker.frame() for _ in range(60)]
            self.assertEqual(sorted(frame["value"][0] for frame in answers), list(range(60)))


class Helpers(unittest.TestCase):
    maxDiff = None

    TEXT = HEAD + """
from decimal import Decimal
@handler("tell")
async def tell():
    owlclaw_worker.progress(1, total=4, message="é")
    owlclaw_worker.progress(0.5)
    owlclaw_worker.cost("0.10", model="m", tokens_in=1, tokens_out=2)
    owlclaw_worker.cost(Decimal("1E-7"))
    owlclaw_worker.cost_trace("0af7651916cd43dd8448eb211c80319c")
    owlclaw_worker.log("hello", level="warning")
    return owlclaw_worker.cancelled()
@handler("where")
async def where(): return owlclaw_worker.trace_context()
@handler("where-sync")
def where_sync(): return owlclaw_worker.trace_context()
@handler("tell-from-thread")
async def tell_from_thread():
    import contextvars
    context = contextvars.copy_context()
    await asyncio.get_running_loop().run_in_executor(None, context.run, owlclaw_worker.progress, 2)
@handler("tell-sync")
def tell_sync():
    owlclaw_worker.progress(3)
    time.sleep(0.01)
@handler("flood")
def flood():
    for n in range(40):
        owlclaw_worker.log("x" * 2_000_000)
@handler("late")
async def late():
    async def after():
        await asyncio.sleep(0.01)
        owlclaw_worker.progress(9)
        done.set()
    done = asyncio.Event()
    kept.append((asyncio.ensure_future(after()), done))
kept = []
@handler("await-late")
async def await_late(): await kept[0][1].wait()
@handler("spend-late")
async def spend_late():
    def unknown():
        owlclaw_worker.cost("0.1")
    thread = threading.Thread(target=unknown)
    thread.start()
    thread.join()
    async def after():
        await asyncio.sleep(0.01)
        owlclaw_worker.cost("0.2")
        done.set()
    done = asyncio.Event()
    kept.append((asyncio.ensure_future(after()), done))
@handler("wrong")
def wrong():
    failed = []
    for call in (
        lambda: owlclaw_worker.progress("1"), lambda: owlclaw_worker.progress(float("nan")),
        lambda: owlclaw_worker.progress(True), lambda: owlclaw_worker.progress(10**400),
        lambda: owlclaw_worker.cost("much"), lambda: owlclaw_worker.cost(-1), lambda: owlclaw_worker.cost("NaN"),
        lambda: owlclaw_worker.cost(1, tokens_in=-1), lambda: owlclaw_worker.log("x", level="loud"),
        lambda: owlclaw_worker.cost_trace("../a"), lambda: owlclaw_worker.cost_trace(""), lambda: owlclaw_worker.cost_trace(7),
    ):
        try:
            call()
            failed.append(None)
        except (TypeError, ValueError) as error:
            failed.append(str(error))
    return failed
owlclaw_worker.progress(1)
"""

    def test_handlers_report_progress_cost_and_log(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            self.assertIs(worker.result(1, "tell"), False)
            self.assertEqual(
                worker.frames_before(),
                [
                    {"type": "progress", "id": 1, "progress": 1, "total": 4, "message": "é"},
                    {"type": "progress", "id": 1, "progress": 0.5},
                    {"type": "cost", "id": 1, "usd": "0.10", "model": "m", "tokens_in": 1, "tokens_out": 2},
                    {"type": "cost", "id": 1, "usd": "0.0000001"},
                    {"type": "cost_trace", "id": 1, "trace_id": "0af7651916cd43dd8448eb211c80319c"},
                    {"type": "log", "id": 1, "level": "warning", "message": "hello"},
                ],
            )
            worker.result(2, "tell-from-thread")
            worker.result(3, "tell-sync")
            self.assertEqual([(f["id"], f["progress"]) for f in worker.frames_before()], [(2, 2), (3, 3)])

    def test_handlers_know_where_in_a_trace_they_are(self):
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            self.assertEqual(worker.result(1, "where"), {})
            worker.send(call_frame(2, "where-sync", traceparent=parent))
            self.assertEqual(worker.frame()["value"], {"traceparent": parent})
            worker.send(call_frame(3, "where", traceparent=parent, tracestate="a=1"))
            self.assertEqual(worker.frame()["value"], {"traceparent": parent, "tracestate": "a=1"})

    def test_nonsense_is_refused_where_it_is_said(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            self.assertNotIn(None, worker.result(1, "wrong"))
            self.assertEqual(worker.frames_before(), [])

    def test_amounts_are_sent_in_few_bytes_however_large_they_are(self):
        import owlclaw_worker

        for given, sent in (
            (1e30, "1" + 30 * "0"),
            ("1e-7", "0.0000001"),
            ("1E+999999999", "1E+999999999"),
            ("1E-999999999", "1E-999999999"),
            ("0E+999999999", "0E+999999999"),
            (0, "0"),
        ):
            self.assertEqual(owlclaw_worker._amount(given), sent)
        for given in ("NaN", "sNaN", "Infinity", float("nan"), float("inf"), -1, "-0.01", "1E+99999999999999999999", None, True):
            with self.subTest(given), self.assertRaises(ValueError):
                owlclaw_worker._amount(given)

    def test_nothing_is_said_about_a_call_that_has_ended(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            worker.result(1, "late")
            worker.result(2, "await-late")
            self.assertEqual(worker.frames_before(), [])

    def test_costs_that_belong_to_no_running_call_are_told(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            worker.result(1, "spend-late")
            worker.result(2, "await-late")
            told = [(frame["type"], frame["id"], frame["usd"]) for frame in worker.frames_before()]
            self.assertEqual(told, [("cost", 0, "0.1"), ("cost", 1, "0.2")])

    def test_long_messages_are_cut(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            worker.result(1, "flood")
            frames = worker.frames_before()
            self.assertEqual(len(frames), 40)
            self.assertLess(max(len(frame["message"]) for frame in frames), 70_000)

    def test_outside_a_call_the_helpers_do_nothing(self):
        code = "import owlclaw_worker as w; w.progress(1); w.cost(1); w.log('x'); print(w.cancelled(), w.trace_context())"
        environment = {**os.environ, "PYTHONPATH": str(PYTHON_DIRECTORY)}
        done = subprocess.run([sys.executable, "-B", "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout.strip(), b"False {}")


class Cancelling(unittest.TestCase):
    TEXT = HEAD + """
@handler("wait")
async def wait():
    owlclaw_worker.progress(0)
    await asyncio.sleep(1000)
@handler("sleep")
def sleep():
    owlclaw_worker.progress(0)
    time.sleep(1000)
@handler("spin")
def spin():
    owlclaw_worker.progress(0)
    while True:
        pass
@handler("chatter")
def chatter():
    while True:
        owlclaw_worker.progress(0)
@handler("block")
async def block():
    owlclaw_worker.progress(0)
    time.sleep(1000)
@handler("read")
def read():
    reading, _ = os.pipe()
    owlclaw_worker.progress(0)
    os.read(reading, 1)
@handler("hidden")
def hidden(): return wait()
@handler("careful")
def careful():
    try:
        owlclaw_worker.progress(0)
        time.sleep(1000)
    except Exception:
        return "swallowed"
    finally:
        print("cleaned up")
@handler("stubborn")
def stubborn():
    try:
        owlclaw_worker.progress(0)
        time.sleep(1000)
    except BaseException:
        return "finished all the same: %s" % owlclaw_worker.cancelled()
@handler("stubborn-async")
async def stubborn_async():
    try:
        owlclaw_worker.progress(0)
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        raise ValueError("on the way out")
@handler("threaded")
async def threaded():
    import contextvars
    def work():
        owlclaw_worker.progress(0)
        while not owlclaw_worker.cancelled():
            time.sleep(0.001)
        stopped.set()
    await asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, work)
stopped = threading.Event()
@handler("stopped")
def has_stopped(): return stopped.wait(20)
@handler("fine")
def fine(): return "fine"
"""

    def test_a_cancelled_call_ends_at_once_and_the_worker_goes_on(self):
        names = ["wait", "sleep", "spin", "chatter", "block", "read", "hidden", "careful", "stubborn-async"]
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            for call_id, name in enumerate(names):
                with self.subTest(name=name):
                    worker.call(call_id, name)
                    self.assertEqual(worker.frame()["type"], "progress")  # It runs.
                    started = time.monotonic()
                    worker.cancel(call_id)
                    frame = worker.answer(call_id)
                    self.assertLess(time.monotonic() - started, 5)
                    self.assertEqual((frame["type"], frame["kind"]), ("error", "cancelled"))
                    self.assertEqual(worker.result(call_id + 100, "fine"), "fine")
            self.assertIn("cleaned up", worker.output("stdout"))

    def test_a_handler_may_insist_on_its_result(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            worker.call(1, "stubborn")
            worker.frame()
            worker.cancel(1)
            self.assertEqual(worker.answer(1)["value"], "finished all the same: True")

    def test_who_is_told_at_an_await_cleans_up_undisturbed(self):
        text = self.TEXT + """
import signal
@handler("tidy-async")
async def tidy_async():
    try:
        owlclaw_worker.progress(0)
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        # The server's signal, which comes later than the frame where there is much else to do.
        os.kill(os.getpid(), signal.SIGUSR1)
        return "tidied"
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            worker.call(1, "tidy-async")
            worker.frame()
            worker.send({"type": "cancel", "id": 1})
            self.assertEqual(worker.answer(1)["value"], "tidied")

    def test_cleaning_up_is_not_interrupted_again(self):
        text = self.TEXT + """
@handler("tidy")
def tidy():
    try:
        owlclaw_worker.progress(0)
        time.sleep(1000)
    finally:
        owlclaw_worker.progress(1)
        time.sleep(0.2)
        owlclaw_worker.progress(2)
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            worker.call(1, "tidy")
            worker.frame()
            worker.cancel(1)
            self.assertEqual(worker.frame()["progress"], 1)
            worker.cancel(1)
            self.assertEqual(worker.answer(1)["kind"], "cancelled")
            self.assertEqual([frame["progress"] for frame in worker.frames_before()], [2])

    def test_only_the_named_call_is_cancelled(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            for call_id in (1, 2, 3):
                worker.call(call_id, "wait")
                worker.frame()
            worker.cancel(2)
            self.assertEqual(worker.frame()["id"], 2)
            worker.cancel(77)
            worker.cancel(3)
            self.assertEqual(worker.frame()["id"], 3)
            worker.send({"type": "ping"})
            self.assertEqual(worker.frame(), {"type": "pong"})

    def test_threads_can_ask(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            worker.call(1, "threaded")
            worker.frame()
            worker.cancel(1)
            self.assertEqual(worker.answer(1)["kind"], "cancelled")
            self.assertIs(worker.result(2, "stopped"), True)

    def test_a_call_that_has_not_begun_never_begins(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            # One read: the cancellations are there before any of the handlers could run.
            worker.send(
                call_frame(1, "sleep"), call_frame(2, "wait"), {"type": "cancel", "id": 1}, {"type": "cancel", "id": 2}
            )
            frames = {frame["id"]: frame for frame in (worker.frame(), worker.frame())}
            self.assertEqual({frame["kind"] for frame in frames.values()}, {"cancelled"})

    def test_frames_read_while_looking_for_the_cancellation_are_not_lost(self):
        for name in ("sleep", "block"):
            with self.subTest(name=name), WorkerProcess(self.TEXT) as worker:
                worker.ready()
                worker.call(1, name)
                worker.frame()
                worker.send(call_frame(2, "fine"), call_frame(3, "wait"), {"type": "ping"})
                worker.cancel(1)
                frames = [worker.frame() for _ in range(4)]
                self.assertEqual(
                    {(frame["type"], frame.get("id")) for frame in frames},
                    {("error", 1), ("result", 2), ("progress", 3), ("pong", None)},
                )

    def test_calls_read_while_looking_for_the_cancellation_start_afresh(self):
        text = self.TEXT + """
import contextvars
seen = contextvars.ContextVar("seen", default=None)
@handler("mark")
async def mark():
    seen.set("marked")
    owlclaw_worker.progress(0)
    time.sleep(1000)
@handler("look")
async def look(): return seen.get()
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            worker.call(1, "mark")
            worker.frame()
            worker.send(call_frame(2, "look"))
            worker.cancel(1)
            self.assertIsNone(worker.answer(2)["value"])

    def test_a_handler_that_waits_for_the_server_to_read_can_be_cancelled(self):
        text = self.TEXT + """
@handler("flood")
def flood():
    while True:
        owlclaw_worker.log("x" * 60_000)
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            worker.call(1, "flood")
            self.assertEqual(worker.frame()["type"], "log")
            time.sleep(0.5)  # Lets the backlog fill up; nothing depends on it.
            worker.cancel(1)
            self.assertEqual(worker.answer(1)["kind"], "cancelled")
            self.assertEqual({len(frame["message"]) for frame in worker.frames_before()}, {60_000})
            self.assertEqual(worker.result(2, "fine"), "fine")

    def test_stray_signals_do_no_harm(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            stop = threading.Event()

            def annoy():
                while not stop.is_set():
                    for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
                        os.kill(worker.pid, number)
                    time.sleep(0.0005)

            annoyance = threading.Thread(target=annoy)
            annoyance.start()
            try:
                for call_id in range(300):
                    self.assertEqual(worker.result(call_id, "fine"), "fine")
                for call_id in range(300, 400):
                    name = ("sleep", "wait", "spin", "chatter")[call_id % 4]
                    worker.call(call_id, name)
                    worker.frame()
                    worker.send({"type": "cancel", "id": call_id})
                    self.assertEqual(worker.answer(call_id)["kind"], "cancelled")
            finally:
                stop.set()
                annoyance.join()

    def test_a_cancellation_right_behind_the_call_is_never_missed(self):
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            for call_id in range(300):
                worker.call(call_id, "sleep")
                # Sweeps the moments between reading the call and running it.
                deadline = time.perf_counter() + call_id * 0.5e-6
                while time.perf_counter() < deadline:
                    pass
                worker.cancel(call_id)
                self.assertEqual(worker.answer(call_id)["kind"], "cancelled")


class Ending(unittest.TestCase):
    def test_the_end_of_the_server_ends_the_worker_whatever_it_does(self):
        for name in ("sleep", "spin", "wait", "block", None):
            with self.subTest(name=name), WorkerProcess(Cancelling.TEXT) as worker:
                worker.ready()
                if name is not None:
                    worker.call(1, name)
                    worker.frame()
                worker.connection.close()
                self.assertEqual(worker.wait(10), 0)

    def test_shutdown_lets_calls_finish_and_starts_no_others(self):
        text = HEAD + """
import atexit
atexit.register(print, "at exit")
@handler("wait")
async def wait():
    owlclaw_worker.progress(0)
    await asyncio.sleep(0.2)
    return "done"
threading.Thread(target=time.sleep, args=(1000,)).start()
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            worker.call(1, "wait")
            worker.frame()
            worker.send({"type": "shutdown"}, call_frame(2, "wait"))
            self.assertEqual(worker.answer(2)["kind"], "cancelled")
            self.assertEqual(worker.answer(1)["value"], "done")
            self.assertRaises(Ended, worker.frame)
            self.assertEqual(worker.wait(10), 0)
            self.assertIn("at exit", worker.output("stdout"))

    def test_shutdown_of_an_idle_worker(self):
        with WorkerProcess(HEAD) as worker:
            worker.ready()
            worker.send({"type": "shutdown"})
            self.assertRaises(Ended, worker.frame)
            self.assertEqual(worker.wait(10), 0)

    def test_a_handler_can_still_end_its_process(self):
        with WorkerProcess(HEAD + "handler('end')(lambda: os._exit(7))\n") as worker:
            worker.ready()
            worker.call(1, "end")
            self.assertRaises(Ended, worker.frame)
            self.assertEqual(worker.wait(10), 7)

    def test_a_call_that_is_lost_on_its_way_in_ends_the_worker(self):
        text = HEAD + """
from owlclaw_worker import protocol
def fail(payload):
    raise MemoryError()
@handler("fill")
async def fill():
    protocol._decode_frame = fail
@handler("fill-and-wait")
async def fill_and_wait():
    protocol._decode_frame = fail
    owlclaw_worker.progress(1)
    while True:
        try:
            time.sleep(0.01)
        except MemoryError:
            pass
"""
        for name in ("fill", "fill-and-wait"):
            with self.subTest(name), WorkerProcess(text) as worker:
                worker.ready()
                worker.call(1, name)
                worker.frame()
                with contextlib.suppress(BrokenPipeError):  # It may have ended already.
                    worker.call(2, name)
                    worker.cancel(1)
                with self.assertRaises(Ended):
                    while True:
                        worker.frame()
                self.assertEqual(worker.wait(TIMEOUT), 70)
                self.assertIn("a frame was lost: MemoryError()", worker.output("stderr"))

    def test_a_crash_leaves_its_trace_in_the_log(self):
        text = HEAD + "import faulthandler\nhandler('crash')(lambda: faulthandler._sigsegv())\n"
        with WorkerProcess(text) as worker:
            worker.ready()
            worker.call(1, "crash")
            self.assertRaises(Ended, worker.frame)
            self.assertEqual(worker.wait(TIMEOUT), -signal.SIGSEGV)
            self.assertIn("Segmentation fault", worker.output("stderr"))
            self.assertIn("app.py", worker.output("stderr"))

    def test_a_forked_child_neither_answers_nor_keeps_the_socket(self):
        text = HEAD + """
@handler("fork")
def fork():
    child = os.fork()
    if child == 0:
        owlclaw_worker.progress(13)
        return "from the child"
    os.waitpid(child, 0)
    return "from the parent"
@handler("leave-a-child")
def leave_a_child():
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    os._exit(3)
@handler("pool")
def pool():
    import multiprocessing
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, 2])
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            self.assertEqual(worker.result(1, "fork"), "from the parent")
            self.assertEqual(worker.result(2, "pool"), [1, 2])
            self.assertEqual(worker.frames_before(), [])
            worker.call(3, "leave-a-child")
            self.assertRaises(Ended, worker.frame)

    def test_a_server_that_breaks_the_protocol_is_left(self):
        for payload in (b"\xff\xff\xff\xff", b"\0\0\0\2xx", b'\0\0\0\x0f{"type":"call"}'):
            with self.subTest(payload=payload), WorkerProcess(HEAD) as worker:
                worker.ready()
                worker.connection.sendall(payload)
                self.assertRaises(Ended, worker.frame)
                self.assertEqual(worker.wait(10), 70)
                self.assertIn("broke the worker protocol", worker.output("stderr"))

    def test_started_by_hand_it_says_so(self):
        environment = {**os.environ, "PYTHONPATH": str(PYTHON_DIRECTORY)}
        done = subprocess.run(
            [sys.executable, "-B", "-m", "owlclaw_worker"], env=environment, stderr=subprocess.PIPE, timeout=TIMEOUT
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"OWLCLAW_WORKER_SOCKET", done.stderr)


if __name__ == "__main__":
    unittest.main()
