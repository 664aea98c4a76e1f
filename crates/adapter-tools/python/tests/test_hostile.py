"""Handlers that misbehave: each call ends in a frame, or in the end of its worker and of nothing else."""

import os
import pathlib
import signal
import time
import unittest

from support import TIMEOUT, Ended, Launcher
from test_launcher import is_running, linux_only

APPLICATION = (pathlib.Path(__file__).parent / "hostile_app.py").read_text(encoding="utf-8")


def wait_until_stuck(pid):
    """Wait until a process sleeps, or has calculated for a while without coming back."""

    def look():
        state, *numbers = pathlib.Path("/proc/%d/stat" % pid).read_bytes().rpartition(b")")[2].split()
        return state, int(numbers[10]) + int(numbers[11])

    _, before = look()
    deadline = time.monotonic() + TIMEOUT
    while True:
        state, ticks = look()
        if state == b"S" or ticks > before + 10:
            return
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.launcher = Launcher(APPLICATION, memory=2 << 30)
        cls.launcher.ready()
        cls.call_id = 0

    @classmethod
    def tearDownClass(cls):
        cls.launcher.__exit__(None, None, None)

    def worker(self):
        worker = self.launcher.fork()
        worker.expect_serving()
        return worker

    def next_id(self):
        type(self).call_id += 1
        return self.call_id

    def check_serves(self, worker):
        for name in ("fine", "fine-async"):
            self.assertEqual(worker.result(self.next_id(), name, {"value": 7}), {"value": 7})

    def outcome(self, worker, name, **arguments):
        """The answer to a call, once more than once: nothing else may claim to be one."""
        call_id = self.next_id()
        worker.call(call_id, name, arguments)
        frame = worker.answer(call_id)
        worker.send({"type": "ping"})
        after = worker.frame()
        while after["type"] != "pong":
            self.assertNotEqual(after.get("id"), call_id, after)
            after = worker.frame()
        return frame

    def test_calls_that_end_well(self):
        rows = [
            ("print-forged-frames", "quiet"),
            ("print-a-lot", "quiet"),
            ("replace-stdout", "quiet"),
            ("close-stdout", "quiet"),
            ("raise-in-finalizer", "fine"),
            ("fork-and-return", "parent"),
            ("fork-and-return-async", "parent"),
            ("fork-and-wait", "parent"),
            ("fork-in-c", "parent"),
            ("fork-in-c-and-raise", "parent"),
            ("pool", [1, 2]),
            ("change-everything", "changed"),
            ("start-threads", "started"),
            ("never-await", "fine"),
            ("leave-tasks", "fine"),
            ("stop-the-loop", "fine"),
            ("close-the-loop", "fine"),
        ]
        for name, expected in rows:
            with self.subTest(name=name):
                worker = self.worker()
                frame = self.outcome(worker, name)
                self.assertEqual(frame.get("value"), expected, frame)
                self.check_serves(worker)

    def test_calls_that_fail(self):
        rows = [
            ("recurse", {}, "raised", "RecursionError"),
            ("take-all-memory", {}, "raised", "MemoryError"),
            ("run-a-loop", {}, "raised", "RuntimeError"),
            ("cancel-everything", {}, "raised", "CancelledError"),
            ("return-what-exits", {}, "unserializable", "SystemExit"),
            *(
                (name, {"error": error}, "raised", error)
                for name in ("raise", "raise-async")
                for error in ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError")
            ),
            ("raise", {"error": "StopIteration"}, "raised", "StopIteration"),
            ("raise-async", {"error": "StopIteration"}, "raised", "RuntimeError"),
            ("raise", {"error": "unprintable"}, "raised", "Unprintable"),
            ("return", {"kind": "cycle"}, "unserializable", "dict"),
            ("return", {"kind": "large"}, "too_large", "str"),
            ("return", {"kind": "surrogate"}, "unserializable", "str"),
            ("return", {"kind": "class"}, "unserializable", "type"),
            ("return", {"kind": "keys"}, "unserializable", "dict"),
            ("return", {"kind": "long"}, "unserializable", "int"),
        ]
        for name, arguments, kind, exception in rows:
            with self.subTest(name=name, **arguments):
                worker = self.worker()
                frame = self.outcome(worker, name, **arguments)
                self.assertEqual((frame.get("kind"), frame.get("exception")), (kind, exception), frame)
                self.check_serves(worker)
        value = self.outcome(self.worker(), "return", kind="datetime")["value"]
        self.assertEqual(value, "2026-02-28T12:30:00")

    def test_calls_that_end_their_worker_and_no_other(self):
        rows = [
            ("exit", 3, ""),
            ("crash", -signal.SIGSEGV, "Segmentation fault"),
            ("crash-async", -signal.SIGABRT, "Aborted"),
            ("kill-group", -signal.SIGKILL, ""),
            ("close-all-descriptors", 70, "the worker cannot go on"),
            ("close-all-descriptors-async", 70, "the worker cannot go on"),
            ("replace-all-descriptors", 70, "the worker cannot go on"),
            ("break-the-loop", 70, "the worker cannot go on"),
        ]
        other = self.worker()
        for name, status, message in rows:
            with self.subTest(name=name):
                worker = self.worker()
                worker.call(self.next_id(), name)
                self.assertEqual(worker.wait(), status, worker.output("stderr"))
                self.assertIn(message, worker.output("stderr"))
                self.check_serves(other)

    def test_calls_that_never_end_can_be_cancelled(self):
        for name in ("sleep", "loop", "block-the-loop", "sleep-in-finalizer"):
            with self.subTest(name=name):
                worker = self.worker()
                call_id = self.next_id()
                worker.call(call_id, name)
                self.assertEqual(worker.frame()["type"], "progress")
                worker.cancel(call_id)
                self.assertEqual(worker.answer(call_id)["kind"], "cancelled")
                self.check_serves(worker)

    def test_a_result_too_deep_for_the_encoder(self):
        worker = self.worker()
        call_id = self.next_id()
        worker.call(call_id, "recurse-high")
        try:
            self.assertEqual(worker.answer(call_id)["kind"], "unserializable")
        except Ended:  # Until Python 3.11 the limit that the handler raised is the encoder's as well.
            self.assertEqual(worker.wait(), -signal.SIGSEGV)

    @linux_only
    def test_calls_that_do_not_listen_can_be_killed(self):
        names = ("stuck-in-c", "stuck-without-the-lock", "stuck-with-the-lock", "swallow-everything")
        workers = []
        for name in names:
            worker = self.worker()
            call_id = self.next_id()
            worker.call(call_id, name)
            self.assertEqual(worker.frame()["type"], "progress")
            wait_until_stuck(worker.pid)
            worker.cancel(call_id)
            workers.append(worker)
        self.check_serves(self.worker())
        for name, worker in zip(names, workers):
            with self.subTest(name=name):
                os.killpg(worker.pid, signal.SIGKILL)
                self.assertEqual(worker.wait(), -signal.SIGKILL)
                self.assertRaises(Ended, worker.frame)

    def test_a_call_beside_a_fork_happens_once(self):
        worker = self.worker()
        calls = [self.next_id() for _ in range(20)]
        for call_id in calls:
            worker.call(call_id, ("fork-and-wait", "fine-async")[call_id % 2])
        answers = {}
        while len(answers) < len(calls):
            frame = worker.frame()
            self.assertEqual(frame["type"], "result", frame)
            self.assertNotIn(frame["id"], answers)
            answers[frame["id"]] = frame["value"]
        self.check_serves(worker)

    @linux_only
    def test_what_is_left_running_ends_with_the_launcher(self):
        with Launcher(APPLICATION) as launcher:
            launcher.ready()
            worker = launcher.fork()
            worker.expect_serving()
            left = [worker.result(1, "leave-a-daemon"), *worker.result(2, "fork-bomb")]
            os.kill(worker.pid, signal.SIGKILL)
            self.assertEqual(worker.wait(), -signal.SIGKILL)
            self.assertTrue(all(is_running(pid) for pid in left))
            launcher.connection.close()
            self.assertEqual(launcher.process.wait(TIMEOUT), 0)
            self.assertEqual([pid for pid in left if is_running(pid)], [])


if __name__ == "__main__":
    unittest.main()
