"""The parent of an application's workers: imports the application once, and forks them.

It runs no handler, and so it is never stuck. It has one thread, because only that one would be left in
the workers.
"""

import asyncio
import atexit
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback

from . import forkable, introduce, load, log_lines, processes, protocol, worker
from .event_loop import Loop

# How long what has been killed may take to be gone before the launcher ends without it.
PATIENCE = 2.0

_READ_SIZE = 64 * 1024


class Settings:
    """What the server said in the environment."""

    def __init__(self, socket_path, nonce, app, root, start, memory=None, threads=1, patience=0.0, search=()):
        self.socket = socket_path
        self.nonce = nonce
        self.app = app
        self.root = os.path.abspath(root)
        self.start = start  # "fork" or "spawn"
        self.memory = memory  # bytes, for each worker
        self.threads = threads  # with one, synchronous handlers run on the main thread
        self.patience = patience  # seconds after which it is told where the import is; 0 for never
        self.search = [os.path.abspath(one) for one in search]  # where its modules are looked for besides
        self.launcher = os.getpid()


class Forked(Exception):
    """Raised in a child: leaves the launcher's loop, with what the worker has to know."""

    def __init__(self, order):
        super().__init__()
        self.order = order


class _Hangup(Exception):
    """The server is gone."""


class Launcher:
    """Forks workers when told to, and tells how they ended."""

    def __init__(self, connection):
        self._connection = connection
        self._reader = protocol.FrameReader()
        self._workers = {}  # by number: pid
        self._ended = set()  # numbers of those that are zombies
        self._to_reap = set()  # numbers of those to reap once they have ended
        self._shutting_down = False
        self._waking, self._wake = socket.socketpair()
        self._waking.setblocking(False)
        self._wake.setblocking(False)

    # Life

    def serve(self):
        """Run until the server is done. Raises `Forked` in each worker."""
        _ignore_signals()
        # What the application installed while it was imported is its workers'.
        child_handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        wakeup = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        try:
            self._serve()
        except Forked:
            signal.set_wakeup_fd(wakeup)
            signal.signal(signal.SIGCHLD, child_handler or signal.SIG_DFL)
            self._connection.close()
            self._waking.close()
            self._wake.close()
            raise
        except (_Hangup, ConnectionError):
            self._kill_all()
            os._exit(0)
        except BaseException as error:
            if isinstance(error, protocol.ProtocolError):
                print("the server broke the worker protocol: %s" % error, file=sys.stderr)
            else:
                traceback.print_exc()
            self._kill_all()
            os._exit(70)
        self._kill_all()

    def _serve(self):
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._waking, select.POLLIN)
        while not (self._shutting_down and not self._workers):
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._waking.fileno() in ready:
                self._waking.recv(_READ_SIZE)
            self._look_at_children()
            if self._connection.fileno() in ready:
                data = self._connection.recv(_READ_SIZE)
                if not data:
                    raise _Hangup()
                for frame in self._reader.feed(data):
                    self._take(frame)

    def _take(self, frame):
        kind = frame["type"]
        try:
            if kind == "fork":
                self._fork(frame)
            elif kind == "reap":
                self._reap(frame["worker"])
            elif kind == "shutdown":
                self._shutting_down = True
            elif kind == "ping":
                self._send({"type": "pong"})
        except (KeyError, TypeError) as error:
            raise protocol.ProtocolError("a frame without its members: %r" % error) from error

    def _send(self, frame):
        self._connection.sendall(protocol.encode_frame(frame))

    # Workers

    def _fork(self, order):
        number = order["worker"]
        if self._shutting_down:
            self._send({"type": "fork_failed", "worker": number, "message": "the launcher is shutting down"})
            return
        # Else it would be written once more by each worker.
        log_lines.end_all()
        try:
            pid = processes.fork()
        except OSError as error:
            self._send({"type": "fork_failed", "worker": number, "message": str(error)})
            return
        if pid == 0:
            raise Forked(order)
        try:
            # The worker does so too; whoever comes first, the group is there when the server hears of it.
            os.setpgid(pid, pid)
        except OSError:
            pass
        self._workers[number] = pid
        self._send({"type": "forked", "worker": number, "pid": pid})

    def _look_at_children(self):
        for number, pid in list(self._workers.items()):
            if number in self._ended:
                continue
            ending = processes.has_ended(pid)
            if ending is not None:
                code, number_of_signal = ending
                self._ended.add(number)
                self._send({"type": "exited", "worker": number, "pid": pid, "code": code, "signal": number_of_signal})
                if number in self._to_reap:
                    self._reap(number)
        ours = set(self._workers.values())
        for pid in processes.children():
            if pid not in ours:
                processes.reap(pid, os.WNOHANG)

    def _reap(self, number):
        if number not in self._workers:
            return
        if number not in self._ended:
            self._to_reap.add(number)
            return
        processes.reap(self._workers.pop(number))
        self._ended.discard(number)
        self._to_reap.discard(number)

    def _kill_all(self):
        """Kill the workers, their groups, and whatever else they have left behind."""
        for pid in self._workers.values():
            processes.kill_group(pid)
        deadline = time.monotonic() + PATIENCE
        left = set(self._workers.values())
        while time.monotonic() < deadline:
            left = {pid for pid in left if not processes.reap(pid, os.WNOHANG)}
            # Killing an orphan makes orphans of its children, which come to us in turn.
            orphans = [pid for pid in processes.children() if pid not in left]
            for pid in orphans:
                processes.kill(pid)
                processes.reap(pid, os.WNOHANG)
            if not left and not orphans:
                return
            time.sleep(0.001)


def _ignore_signals():
    """A terminal or service manager sends these to everybody. The server decides what they mean."""
    # Functions, not SIG_IGN, which child processes would inherit.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)


class _DeathWatch:
    """A process that kills our group when the server goes away while an import keeps us busy.

    Not a thread: an import may be stuck in C code that lets no thread run.
    """

    def __init__(self, connection):
        ours = os.getpid()
        reading, self._writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                processes.die_with(ours)
                os.close(self._writing)
                _wait_for_hang_up(connection, reading)
                if os.getpgid(ours) == ours:
                    processes.kill_group(ours)
                elif os.getppid() == ours:
                    processes.kill(ours)
            finally:
                os._exit(0)
        os.close(reading)

    def end(self):
        """Stop watching."""
        with processes.children_unheard():
            processes.kill(self._pid)
            processes.reap(self._pid)
        os.close(self._writing)


def _wait_for_hang_up(connection, parent):
    poll = select.poll()
    poll.register(connection, select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0))
    poll.register(parent, select.POLLHUP)
    poll.poll()


def run(settings):
    """Run a launcher to its end; in each of its workers, run that to its end. Returns an exit status."""
    processes.lead_group()
    processes.adopt_orphans()
    log_lines.install()
    _ignore_signals()
    connection = introduce.connect(settings.socket, settings.nonce, role="launcher")
    loop = Loop()
    asyncio.set_event_loop(loop)
    loaded = None
    if settings.start == "fork":
        loaded = _load(settings, connection, loop)
        if loaded is None:
            return 1
    # What is there by now stays, and is shared with the workers as long as nobody writes to it: the
    # collector would.
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    gc.freeze()
    try:
        Launcher(connection).serve()
    except Forked as forked:
        order = forked.order
    else:
        log_lines.end_all()
        atexit._run_exitfuncs()
        os._exit(0)
    if collecting:
        gc.enable()
    # Outside of the exception's handler, so that handlers' exceptions do not have it as their context.
    worker.run(settings, order, loop, loaded)


def _load(settings, connection, loop):
    """Import the application, and say so to the server. Its handlers and states, or `None` if that failed."""
    started = time.monotonic()
    watch = _DeathWatch(connection)
    before = forkable.Watch()
    try:
        os.chdir(settings.root)
        with processes.telling_where(settings.patience):
            application = load.load(settings.app, settings.root, loop.run_until_complete, settings.search)
        frame, handlers = introduce.ready(application, settings.root, started, before.reasons(loop))
        if application.one_thread:
            settings.threads = 1
    except BaseException as error:  # SystemExit of an application that misses its settings included.
        frame, handlers = introduce.fatal(error, settings.root), None
    finally:
        watch.end()
    connection.sendall(frame)
    log_lines.end_all()
    return None if handlers is None else (handlers, application.states(), application.app)
