"""Whether a process that has imported an application may be forked.

A fork copies memory, and only the thread that calls it. Threads are missing in the child, and whoever
waits for them waits for ever; connections and files are shared with it, and two processes that talk over
one connection garble it. So each of these is looked for, and named.
"""

import asyncio
import os
import signal
import socket
import stat
import threading

from . import processes

# Devices that hold no state, which libraries keep open.
_HARMLESS = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")

# At most so many of a kind are named.
_NAMED = 5


class Watch:
    """Made before an application is imported; asked afterwards what stands against forking."""

    def __init__(self):
        self._descriptors = _descriptors()
        self._children = set(processes.children())

    def reasons(self, loop):
        """Why this process cannot be forked, for people. Empty if it can."""
        found = []
        found += _some(self._opened(), "the application opened %s while it was imported")
        found += _some(_threads(), "%s was started while the application was imported, and still runs")
        found += _some(_tasks(loop), "the task %s was started while the application was imported, and is pending")
        found += _some(self._started(), "the application started the process %s while it was imported")
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            found.append("the application set a timer that sends SIGALRM while it was imported")
        return found

    def _opened(self):
        for descriptor, identity in sorted(_descriptors().items()):
            if self._descriptors.get(descriptor) != identity:
                name = _name_of(descriptor)
                if name is not None:
                    yield name

    def _started(self):
        for pid in processes.children():
            if pid not in self._children:
                name = processes.name_of(pid)
                if name:  # Neither gone nor a zombie.
                    yield "%s (%d)" % (name, pid)


def _some(names, text):
    names = list(dict.fromkeys(names))
    reasons = [text % name for name in names[:_NAMED]]
    if len(names) > _NAMED:
        reasons.append(text % ("%d more" % (len(names) - _NAMED)))
    return reasons


# Descriptors


def _descriptors():
    """What every open file descriptor refers to, by number."""
    found = {}
    for directory in ("/proc/self/fd", "/dev/fd"):
        try:
            numbers = [int(name) for name in os.listdir(directory)]
        except OSError:
            continue
        for number in numbers:
            try:
                status = os.fstat(number)
            except OSError:
                continue  # The listing's own.
            found[number] = (status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode))
        break
    return found


def _name_of(descriptor):
    """What to call what the application opened, or `None` where it does no harm."""
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISSOCK(mode):
            return _name_of_socket(descriptor)
        path = _path_of(descriptor)
        if stat.S_ISREG(mode) and _appends(descriptor):
            return None  # A log: every writer's lines go to the end of it.
    except OSError:
        return None
    if path in _HARMLESS:
        return None
    if path.startswith("anon_inode:"):
        return "an %s descriptor" % path[len("anon_inode:") :].strip("[]")
    if stat.S_ISFIFO(mode):
        return path if path.startswith("/") else "a pipe"
    return path


def _path_of(descriptor):
    try:
        return os.readlink("/proc/self/fd/%d" % descriptor)
    except OSError:
        pass
    try:
        import fcntl

        path = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))  # macOS, from Python 3.9 on
        return os.fsdecode(path.rstrip(b"\0"))
    except (ImportError, AttributeError, OSError):
        return "the file descriptor %d" % descriptor


def _appends(descriptor):
    import fcntl

    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)


def _name_of_socket(descriptor):
    with socket.socket(fileno=os.dup(descriptor)) as opened:
        try:
            return "a connection to %s" % _address(opened.getpeername())
        except OSError:
            pass
        try:
            return "a socket at %s" % _address(opened.getsockname())
        except OSError:
            return "a socket"


def _address(address):
    if isinstance(address, tuple):
        return "%s:%s" % (address[0], address[1])
    return os.fsdecode(address) or "its own other end"


# Threads and tasks


def _threads():
    """The threads besides the one that asks, which is the one that will fork."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            yield "the thread %r" % thread.name
    if _foreign_threads():
        # Libraries that know about forks, such as OpenBLAS, end their threads before one. So fork once.
        _fork_and_forget()
        foreign = _foreign_threads()
        if foreign:
            yield "%s not of Python's (such as gRPC has)" % ("a thread" if foreign == 1 else "one of %d threads" % foreign)


def _foreign_threads():
    try:
        tasks = len(os.listdir("/proc/self/task"))
    except OSError:
        return 0  # Nobody can tell.
    return max(tasks - threading.active_count(), 0)


def _fork_and_forget():
    with processes.children_unheard():
        child = processes.fork()
        if child == 0:
            os._exit(0)
        processes.reap(child)


def _tasks(loop):
    try:
        pending = asyncio.all_tasks(loop)
    except RuntimeError:  # It changed while it was looked at: there are threads, which say enough.
        return
    for task in pending:
        coroutine = task.get_coro()
        yield repr(getattr(coroutine, "__qualname__", None) or task.get_name())
