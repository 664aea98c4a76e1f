"""`sys.stdout` and `sys.stderr` of a worker: what a call prints comes out as lines that say whose they are.

A line that is printed while a call runs is preceded by `\\x1e`, the call's id and `\\x1f`, and is written
in one go: lines of different calls and threads never mix. What goes around these objects
(`sys.stdout.buffer`, C, child processes) has no mark.
"""

import io
import os
import sys
import threading

import owlclaw_worker

# A line that grows longer than this without coming to an end is written in parts.
MAX_HELD = 32 * 1024

# The ids of calls that have printed a line without an end.
unfinished = set()

_streams = []


def install():
    """Replace `sys.stdout` and `sys.stderr`."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = LogLines(getattr(sys, name), descriptor, "<%s>" % name)
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)
        _streams.append(stream)


def end(call_id):
    """Finish the lines of a call that has ended."""
    unfinished.discard(call_id)
    for stream in _streams:
        _ignoring_closed(stream.end, call_id)


def end_all():
    """Finish all lines, also those of streams that the application put in place of ours."""
    for stream in (sys.stdout, sys.stderr):
        _ignoring_closed(getattr(stream, "flush", lambda: None))
    for stream in _streams:
        _ignoring_closed(stream.end_all)


def _ignoring_closed(function, *arguments):
    try:
        function(*arguments)
    except (OSError, ValueError):
        pass  # Closed, detached, or without a reader: there is nowhere left to say so.


class _Unbuffered(io.BufferedWriter):
    """Writes at once, as with `python -u`, and never less than all of it."""

    def write(self, data):
        written = super().write(data)
        self.flush()
        return written


class LogLines(io.TextIOWrapper):
    """A text stream that marks the lines of calls."""

    def __init__(self, replaced, descriptor, name):
        raw = io.FileIO(descriptor, "w", closefd=False)
        raw.name = name
        super().__init__(
            _Unbuffered(raw),
            encoding=getattr(replaced, "encoding", None) or "utf-8",
            # A character that the log's encoding lacks shall not fail the call that printed it.
            errors="backslashreplace",
            newline="\n",
            write_through=True,
        )
        self.mode = "w"
        # Reentrant: a finalizer that prints may run while a line is being written.
        self._lock = threading.RLock()
        # Beginnings of lines, as (mark, text), by call id or, outside of calls, by thread.
        self._held = {}
        # The key of the line whose beginning is the last thing written, if any.
        self._open = None
        os.register_at_fork(after_in_child=self._after_fork)

    def write(self, text):
        """Write the lines that `text` ends; keep what comes after them."""
        if not isinstance(text, str):
            return super().write(text)  # It knows what to say to that.
        key, mark = _writer()
        with self._lock:
            before = self._held.pop(key, None)
            if before is not None:
                mark, beginning = before
                text_so_far = beginning + text
            else:
                text_so_far = text
            whole, newline, rest = text_so_far.rpartition("\n")
            if newline:
                self._write_lines(key, mark, whole.split("\n"))
            if rest:
                self._held[key] = (mark, rest)
                _note(key)
                if len(rest) > MAX_HELD:
                    self._write_beginning(key)
        return len(text)

    def flush(self):
        """Write the beginning of the line that the caller has not ended yet."""
        key, _ = _writer()
        with self._lock:
            self._write_beginning(key)
        super().flush()

    def close(self):
        """Flush, and stay open for the calls to come."""
        self.flush()

    def end(self, key):
        """End the line of `key`, if it has one."""
        with self._lock:
            self._write_beginning(key)
            if self._open == key:
                self._open = None
                super().write("\n")

    def end_all(self):
        """End all lines."""
        with self._lock:
            for key in [*self._held, self._open]:
                if key is not None:
                    self.end(key)
        super().flush()

    def _write_beginning(self, key):
        mark, text = self._held.pop(key, ("", ""))
        if text:
            text = self._continued(key, mark) + text
            self._open = key
            super().write(text)

    def _write_lines(self, key, mark, lines):
        text = self._continued(key, mark) + ("\n" + mark).join(lines) + "\n"
        self._open = None
        super().write(text)

    def _continued(self, key, mark):
        """What has to stand between what was written last and more of `key`."""
        if self._open is None:
            return mark
        return "" if self._open == key else "\n" + mark

    def _after_fork(self):
        # What the parent has not written is the parent's, and a thread of it may have held the lock.
        self._lock = threading.RLock()
        self._held.clear()
        self._open = None
        unfinished.clear()


def _writer():
    """Whose line is being written: the key it is kept under, and its mark."""
    call = owlclaw_worker._current_call.get()
    if call is None:
        return ("thread", threading.get_ident()), ""
    mark = "\x1e%d\x1f" % call.id
    # Nobody ends the lines of a call that is over.
    return ("thread", threading.get_ident()) if call.finished else call.id, mark


def _note(key):
    if isinstance(key, int):
        unfinished.add(key)
