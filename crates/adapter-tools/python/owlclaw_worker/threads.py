"""Threads that run synchronous handlers, so that the event loop goes on meanwhile.

There are as many as calls run at once, which the server bounds, and fewer where no more can be started: with a
bound of memory, say. Then calls wait for a thread. A thread cannot be stopped from outside:
a cancelled call gets `Interrupted` at its next step in Python. `time.sleep` is cut short for it; until another
wait in the kernel, such as for a socket, has ended, nothing reaches it, and the server lets it be.
"""

import contextvars
import queue
import sys
import threading
import time

import owlclaw_worker

from . import processes

try:
    import ctypes

    _raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    _raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
    _raise_in.restype = ctypes.c_int
    _NOTHING = ctypes.py_object()
except (ImportError, AttributeError):  # An interpreter without it: calls go on until they end by themselves.
    _raise_in = None


class Busy(Exception):
    """There is no thread for a call, and none can be started."""


class Threads:
    """Threads for calls, started when all others are busy and kept afterwards."""

    def __init__(self, run):
        self._run = run
        self._calls = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0  # below zero where calls wait for a thread
        self._count = 0
        self._is_told = False

    def take(self, call):
        """Have a thread run `call`, in a copy of the current context. Raises `Busy`."""
        context = contextvars.copy_context()
        with self._lock:
            is_needed = self._idle <= 0
        if not (is_needed and self._start()):
            with self._lock:
                # Those that exist do not end.
                self._idle -= 1
        self._calls.put((call, context))

    def _start(self):
        """Start a thread; returns whether there is one more."""
        try:
            if self._count and not processes.has_room_for_a_thread():
                raise MemoryError("its handlers would have next to no memory left")
            threading.Thread(target=self._work, name="owlclaw-handler", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            if not self._count:
                raise Busy("no thread can be started for a synchronous handler: %s" % error) from None
            if not self._is_told:
                self._is_told = True
                print(
                    "%d threads run synchronous handlers, and no more can be started (%s): further calls wait for one; "
                    "a larger workers.max_memory_bytes or a lower workers.threads spares them that" % (self._count, error),
                    file=sys.stderr,
                )
            return False
        self._count += 1
        return True

    def _work(self):
        while True:
            call, context = self._calls.get()
            call.thread = threading.get_ident()
            self._run(call, context)
            # A thread that waits keeps nothing of the call alive.
            call = context = None
            with self._lock:
                self._idle += 1


# Shorter ones are not worth the trouble.
_LONG_SLEEP = 0.05


def watch_sleep():
    """Replace `time.sleep` by one that a cancellation ends. Before the application is imported."""
    sleep_on = time.sleep

    def sleep(seconds, /):
        call = owlclaw_worker._current_call.get()
        if call is None or call.thread != threading.get_ident() or not isinstance(seconds, (int, float)):
            return sleep_on(seconds)
        if not _LONG_SLEEP < seconds < threading.TIMEOUT_MAX:
            return sleep_on(seconds)
        with call.gate:
            woken = call.woken = None if call.cancel_requested else threading.Event()
        if woken is not None:
            woken.wait(seconds)
            return
        # The interruption may be still to come, and reaches the thread between two steps alone.
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sleep_on(max(0.0, min(_LONG_SLEEP, end - time.monotonic())))

    sleep.__doc__ = sleep_on.__doc__
    sleep.__module__ = "time"
    time.sleep = sleep


def interrupt(thread, exception):
    """Raise `exception`, a class, in a thread as soon as it runs Python code. Returns whether it can be."""
    return _raise_in is not None and _raise_in(thread, exception) == 1


def withdraw(thread):
    """Take back what `interrupt` asked for and what has not been raised yet."""
    if _raise_in is not None:
        _raise_in(thread, _NOTHING)


def bound(modules):
    """What of an application belongs to the thread that has imported it, for people.

    Handlers that use it from other threads would fail, so they all run on the main one.
    """
    sqlite = sys.modules.get("sqlite3")
    if sqlite is None:
        return []
    found = []
    for module in modules:
        for name, value in list(vars(module).items()):
            for path, one in _connections(sqlite, "%s.%s" % (module.__name__, name), value):
                if path not in found and _is_bound(sqlite, one):
                    found.append(path)
    return ["the SQLite connection `%s` belongs to the main thread (`check_same_thread`)" % path for path in found]


def _connections(sqlite, path, value):
    if isinstance(value, (sqlite.Connection, sqlite.Cursor)):
        yield path, value
        return
    try:
        attributes = list(vars(value).items())
    except TypeError:
        return
    if not isinstance(value, type(threading)):
        for name, one in attributes:
            if isinstance(one, (sqlite.Connection, sqlite.Cursor)):
                yield "%s.%s" % (path, name), one


def _is_bound(sqlite, one):
    connection = getattr(one, "connection", one)
    outcome = []

    def ask():
        try:
            connection.total_changes
            connection.cursor().close()
        except sqlite.ProgrammingError as error:
            outcome.append("thread" in str(error))
        except Exception:
            pass  # The application's own subclass.

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return any(outcome)
