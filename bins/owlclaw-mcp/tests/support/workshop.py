"""An application that works, fails, shouts, dies and dawdles, as it is told."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import owlclaw_worker
from owlclaw import OwlClaw

app = OwlClaw("workshop")
app.mount_skills("skills")

print("print() while the application is imported")

gate = None
inside = 0
most_inside = 0


def note(name, text):
    """Appends a line in one write, so that it is there whatever happens next."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, text.encode() + b"\n")
    os.close(descriptor)


@app.handler("echo")
async def echo(text: str) -> dict:
    """Gives back what it is given.

    Args:
        text: Any text.
    """
    return {"text": text}


@app.handler("append")
def append(mark: str):
    """Leaves a mark each time it is executed."""
    note("executed", mark)
    return mark


@app.handler("linger")
async def linger(mark: str):
    """Leaves a mark, and goes on for a while."""
    note("executed", mark)
    await asyncio.sleep(0.02)
    return mark


@app.handler("noisy")
def noisy():
    """Writes to every stream there is."""
    forged = '{"jsonrpc": "2.0", "id": 1, "result": {"forged": true}}'
    print(forged, flush=True)
    os.write(1, forged.encode() + b"\n")
    os.write(1, b"\xff\x00 " + b"x" * 70_000)
    print("said to stderr", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-c", "print(%r)" % forged], check=True)
    return "heard"


@app.handler("say")
def say(way: str, hexadecimal: str):
    """Writes bytes to where a careless handler writes."""
    data = bytes.fromhex(hexadecimal)
    if way == "print":
        print(data.decode("utf-8", "replace"))
    elif way == "buffer":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    elif way == "descriptor":
        os.write(1, data)
    elif way == "stderr":
        os.write(2, data)
    else:
        raise ValueError(way)
    return len(data)


@app.handler("flood")
def flood(megabytes: int):
    """Fills every pipe that nobody reads."""
    line = "y" * 1023 + "\n"
    for _ in range(megabytes * 1024):
        sys.stderr.write(line)
    sys.stderr.flush()
    return "flooded"


@app.handler("die")
async def die(status: int):
    os._exit(status)


@app.handler("die_with_all")
async def die_with_all():
    """Takes the process along that all workers come from."""
    os.kill(os.getppid(), signal.SIGKILL)
    await asyncio.sleep(60)


@app.handler("fail")
def fail(why: str):
    raise ValueError(why)


@app.handler("nan")
def nan():
    return float("nan")


@app.handler("unserialisable")
def unserialisable():
    return {"it": object()}


@app.handler("large")
def large(megabytes: int):
    return "x" * (megabytes * 1024 * 1024)


@app.handler("nap")
async def nap(seconds: float):
    try:
        note("naps", "begun")
        await asyncio.sleep(seconds)
    except BaseException:  # An interruption, where it comes before the first await.
        note("naps", "cancelled")
        raise
    note("naps", "over")
    return "rested"


@app.handler("block")
def block(seconds: float):
    try:
        note("blocks", "begun")
        time.sleep(seconds)
    except BaseException:
        note("blocks", "interrupted")
        raise
    note("blocks", "over")
    return "blocked"


@app.handler("spin")
def spin():
    """Nothing in Python can interrupt this."""
    return sum(range(10**13))


@app.handler("meet")
async def meet():
    """Returns once it was called twice at the same time."""
    global gate
    if gate is None:
        gate = asyncio.Event()
        await gate.wait()
        gate = None
    else:
        gate.set()
    return "met"


@app.handler("alone")
def alone():
    """Tells how many of it were ever inside at once."""
    global inside, most_inside
    inside += 1
    most_inside = max(most_inside, inside)
    time.sleep(0.02)
    inside -= 1
    return most_inside


@app.handler("report")
async def report(steps: int):
    for step in range(1, steps + 1):
        owlclaw_worker.progress(step, total=steps, message="step %d" % step)
        await asyncio.sleep(0.005)
    return "done"


@app.handler("report-forever")
async def report_forever():
    step = 0
    try:
        note("reports", "begun")
        while True:
            step += 1
            owlclaw_worker.progress(step)
            await asyncio.sleep(0.005)
    except BaseException:  # An interruption, where it comes between two awaits.
        note("reports", "cancelled")
        raise


@app.handler("spend")
def spend(usd: str):
    owlclaw_worker.cost(usd)
    return "spent"


@app.handler("clean-up")
async def clean_up(usd: str, blocks: bool):
    """Spends when it is given up."""
    try:
        note("cleaning", "begun")
        if blocks:
            time.sleep(600)
        await asyncio.sleep(600)
    finally:
        owlclaw_worker.cost(usd)


@app.handler("look-up")
async def look_up(what: str):
    """Waits until there is a file named `gate`."""
    note("looked-up", what)
    while not os.path.exists("gate"):
        await asyncio.sleep(0.01)
    return {"found": what}
