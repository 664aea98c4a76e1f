"""What a launcher and its workers ask of the operating system."""

import contextlib
import faulthandler
import mmap
import os
import signal
import sys
import warnings

try:
    import resource
except ImportError:  # Not on every platform.
    resource = None

LINUX = sys.platform.startswith("linux")

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MADV_WIPEONFORK = 18


def _load(name):
    try:
        import ctypes

        return getattr(ctypes.CDLL(None, use_errno=True), name)
    except (ImportError, OSError, AttributeError):
        return None


# Loaded once, before any fork.
_prctl = _load("prctl") if LINUX else None
_mallopt = _load("mallopt") if LINUX else None  # of the C library of GNU alone

_M_ARENA_MAX = -8
# Python's own lock keeps most threads from allocating at the same time.
_ARENAS = 2


def lead_group():
    """Put this process into a group of its own, which can be killed as a whole."""
    try:
        os.setpgid(0, 0)
    except OSError:
        pass  # A session's leader has one already.


def die_with(parent):
    """Have the kernel kill this process when `parent`, which forked it, ends (Linux only)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)  # It ended before we asked.


def adopt_orphans():
    """Become the parent of what our descendants leave behind (Linux only)."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def limit_memory(limit):
    """Bound the address space of this process. Raises OSError or ValueError if that cannot be."""
    if resource is None:
        raise OSError("this platform cannot limit the memory of a process")
    size = _address_space()
    if size is not None and size >= limit:
        raise ValueError("the limit is %d bytes, and the process takes %d before its first call" % (limit, size))
    if _mallopt is not None:
        # Each arena takes 64 MiB of addresses, used or not, and by itself nearly every thread would have one.
        # Stacks stay as large as they are: what nests deeply in C, such as a parser, counts on it.
        _mallopt(_M_ARENA_MAX, _ARENAS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


# Addresses that handlers have at least, besides the stacks of their threads.
_SPARE = 16 << 20


def has_room_for_a_thread():
    """Whether a further thread leaves something to the handlers, where memory is bounded."""
    if resource is None:
        return True
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return True
    size, stack = _address_space(), resource.getrlimit(resource.RLIMIT_STACK)[0]
    return size is None or size + (0 if stack == resource.RLIM_INFINITY else stack) + _SPARE <= limit


def _address_space():
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def children():
    """The process ids of this process's children, zombies included; empty where that cannot be known."""
    if not LINUX:
        return []
    found = []
    try:
        # Each thread has its own.
        for thread in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % thread, encoding="ascii") as listing:
                found += [int(pid) for pid in listing.read().split()]
    except OSError:  # A kernel without these lists.
        found = [pid for pid in _all_processes() if _parent_of(pid) == os.getpid()]
    return found


def _all_processes():
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _parent_of(pid):
    try:
        with open("/proc/%d/stat" % pid, "rb") as stat:
            # The second member is the command in parentheses, which may hold anything.
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def name_of(pid):
    """The command of a process, for people; empty when it is gone, `None` for a zombie."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stat:
            head, _, rest = stat.read().rpartition(b")")
    except OSError:
        return ""
    if rest.split()[:1] == [b"Z"]:
        return None
    return head.partition(b"(")[2].decode("utf-8", "replace")


def fork():
    """os.fork, without the warning about threads, which `forkable` has looked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def kill_group(leader):
    """Kill the group that `leader`, which has not been reaped yet, leads."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except OSError:
        pass  # There is nobody left in it.


def kill(pid):
    """Kill a child that has not been reaped yet."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def has_ended(pid):
    """How the child `pid` ended, as (code, signal), or `None`. Leaves it a zombie, so that its id stays taken."""
    try:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13: its id is free from here on.
            reaped, status = os.waitpid(pid, os.WNOHANG)
            return None if not reaped else _code_and_signal(status)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return None, None  # Somebody else has reaped it.
    if ended is None:
        return None
    if ended.si_code == os.CLD_EXITED:
        return ended.si_status, None
    return None, ended.si_status


def _code_and_signal(status):
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def reap(pid, options=0):
    """Take the zombie `pid` away. Whether it is gone."""
    try:
        return os.waitpid(pid, options)[0] == pid
    except ChildProcessError:
        return True


@contextlib.contextmanager
def children_unheard():
    """Keep the ends of children of ours from a handler of SIGCHLD that the application may have."""
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        # `None` is a handler that was not installed from Python.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if handler is None else handler)


class Original:
    """Tells the process that makes it from its forks, those of C code included, faster than `os.getpid` does."""

    def __init__(self):
        self._pid = os.getpid()
        try:
            # A page that the kernel empties in children.
            self._page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._page.madvise(_MADV_WIPEONFORK)
            self._page[0] = 1
        except (OSError, ValueError, AttributeError):  # Not Linux, or one before 4.14.
            self._page = None

    def is_here(self):
        """Whether this is the process that made it."""
        return os.getpid() == self._pid if self._page is None else self._page[0]


@contextlib.contextmanager
def telling_where(seconds):
    """Write the stacks to standard error if what is done takes longer than `seconds`; never with 0.

    The server ends a process that hangs, and tells an author the file by these lines. They come from a thread of
    the interpreter that needs no lock of Python's; it is gone when this ends.
    """
    if seconds:
        faulthandler.dump_traceback_later(seconds, file=2)
    try:
        yield
    finally:
        if seconds:
            faulthandler.cancel_dump_traceback_later()
