"""What a forked worker makes of what was imported in its launcher."""

import importlib.util
import os
import signal
import unittest

from support import Launcher, call_frame
from test_worker import HEAD

TEXT = HEAD + """
import gc, random, secrets, signal, uuid, warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    loop = asyncio.get_event_loop()
lock, queue, event, condition = asyncio.Lock(), asyncio.Queue(), asyncio.Event(), asyncio.Condition()
semaphore = asyncio.Semaphore(1)
random.seed(1)
hung_up = []
loop.add_signal_handler(signal.SIGHUP, hung_up.append, "heard")
signal.signal(signal.SIGCHLD, lambda *_: children.append(1))
children = []

@handler("primitives")
async def primitives(count: int):
    # All of them wait for each other, which fails where they belong to another loop.
    async with lock:
        await asyncio.sleep(0)
    async with semaphore:
        await asyncio.sleep(0)
    await queue.put(1)
    if queue.qsize() == count:
        event.set()
        async with condition:
            condition.notify_all()
    await event.wait()
    return await queue.get()

@handler("loop")
async def which_loop():
    assert asyncio.get_running_loop() is loop
    assert await loop.run_in_executor(None, lambda: 5) == 5
    future = loop.create_future()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, 6)).start()
    return await future

@handler("executor")
async def executor():
    for _ in range(200):
        await loop.run_in_executor(None, abs, 1)

@handler("draw")
def draw():
    numbers = [random.random(), secrets.token_hex(), str(uuid.uuid4()), str(uuid.uuid1())]
    if "numpy" in sys.modules:
        numbers.append(float(sys.modules["numpy"].random.rand()))
    return numbers

@handler("collector")
def collector(): return [gc.isenabled(), gc.get_freeze_count() > 1000]

@handler("hang-up")
async def hang_up():
    os.kill(os.getpid(), signal.SIGHUP)
    while not hung_up:
        await asyncio.sleep(0.001)
    return hung_up

@handler("child")
async def child():
    process = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return [output.decode(), process.returncode, len(children)]
"""


class Forked(unittest.TestCase):
    def workers(self, text, count):
        launcher = Launcher(text)
        self.addCleanup(launcher.__exit__)
        self.assertEqual(launcher.ready()["cannot_fork"], [])
        workers = [launcher.fork() for _ in range(count)]
        for worker in workers:
            worker.expect_serving()
        return workers

    def test_what_asyncio_made_during_the_import_works(self):
        for worker in self.workers(TEXT, 2):
            worker.send(*(call_frame(call_id, "primitives", {"count": 20}) for call_id in range(20)))
            frames = [worker.frame() for _ in range(20)]
            self.assertEqual([frame.get("value") for frame in frames], [1] * 20, frames)

    def test_the_loop_is_the_one_of_the_import(self):
        for worker in self.workers(TEXT, 2):
            self.assertEqual(worker.result(1, "loop"), 6)

    def test_workers_do_not_wake_each_others_loops(self):
        workers = self.workers(TEXT, 3)
        for worker in workers:
            worker.call(1, "executor")
        for worker in workers:
            self.assertEqual(worker.answer(1)["type"], "result")

    def test_workers_draw_different_numbers(self):
        text = TEXT
        if importlib.util.find_spec("numpy"):
            text += "import numpy; numpy.random.seed(1)\n"
        drawn = [worker.result(1, "draw") for worker in self.workers(text, 3)]
        for numbers in zip(*drawn):
            self.assertEqual(len(set(numbers)), 3, numbers)

    def test_the_collector_runs_and_leaves_what_was_imported_alone(self):
        for worker in self.workers(TEXT, 1):
            self.assertEqual(worker.result(1, "collector"), [True, True])

    def test_a_collector_that_the_application_turned_off_stays_off(self):
        for worker in self.workers(TEXT + "gc.disable()\n", 1):
            self.assertEqual(worker.result(1, "collector"), [False, True])

    def test_signal_handlers_of_the_application_are_kept(self):
        first, second = self.workers(TEXT, 2)
        self.assertEqual(first.result(1, "hang-up"), ["heard"])
        self.assertEqual(first.result(2, "child"), ["hello\n", 0, 1])
        self.assertEqual(second.result(1, "hang-up"), ["heard"])
        os.kill(first.pid, signal.SIGHUP)
        self.assertEqual(first.result(3, "loop"), 6)


if __name__ == "__main__":
    unittest.main()
