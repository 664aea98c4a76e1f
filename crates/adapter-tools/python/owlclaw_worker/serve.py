"""The worker itself: one socket, one event loop, and threads for synchronous handlers.

Asynchronous handlers are tasks of the loop. Synchronous ones run in threads beside it; a cancelled one has
`Interrupted` raised in its thread.

With one thread (`workers.threads: 1`) they run inline on the main thread instead, as OwlClaw runs them: code
that is bound to its thread or its loop keeps working. While one runs the loop stands still, so a
cancellation comes with a signal, whose handler reads the socket and raises `Interrupted` inside the
application's code, and nowhere else: `_Call.interruptible` says when that is allowed.
"""

import asyncio
import collections
import contextvars
import inspect
import os
import select
import signal
import sys
import threading

import owlclaw_worker

from . import asking, content, log_lines, processes, protocol, streams, threads
from .call import Handler
from .constraints import InvalidArgument

# One read from the socket.
READ_SIZE = 256 * 1024

# Bytes that may wait to be written before whoever adds more has to wait too.
MAX_BACKLOG = 2 * protocol.MAX_FRAME

_OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

# Types of frames that ask for a handler.
_HANDLED = ("call", "resource", "prompt", "completion")

SERVING = protocol.encode_frame({"type": "serving"})


class Interrupted(BaseException):
    """The caller gave up on the call that is running. Not an Exception, so that handlers let it pass."""

    def __init__(self, call=None):
        super().__init__()
        # In a thread it is made of the class alone.
        self.call = call or owlclaw_worker._current_call.get()


class _Call:
    """One call in progress."""

    __slots__ = (
        "id",
        "name",
        "handler",
        "arguments",
        "payload",
        "context",
        "task",
        "started",
        "finished",
        "cancel_requested",
        "interruptible",
        "interrupted",
        "thread",
        "gate",
        "woken",
        "kept",
        "shown",
        "asks",
        "_worker",
    )

    def __init__(self, worker, frame, handler):
        self.id = frame["id"]
        self.name = frame.get("name")
        self.handler = handler  # a Handler, or the provider of a state
        self.arguments = frame.get("arguments")
        # The text of the arguments, for handlers that want to know how numbers were written.
        self.payload = frame.get("payload")
        if self.payload is not None and not (isinstance(handler, Handler) and handler.wants_written(self.payload)):
            self.payload = None
        self.context = frame.get("ctx") or {}
        self.task = None
        self.started = False
        self.finished = False
        self.cancel_requested = False
        # Whether the application's code is running, so that `Interrupted` may be raised in it.
        self.interruptible = False
        # Whether it was told: by `Interrupted`, or by `CancelledError` at an `await`. That is done once per
        # call: code that catches it has to be able to clean up.
        self.interrupted = False
        # The thread that runs it, if that is not the main one. Whoever interrupts it holds the gate, and so
        # does the thread where it must not be interrupted.
        self.thread = None
        self.gate = None
        self.woken = None  # an event that ends its sleep
        self.kept = None  # what its context keeps
        self.shown = None  # its context, once somebody has asked for it
        self.asks = None  # what it has asked the client
        self._worker = worker

    def emit(self, frame):
        """Send a frame on behalf of this call; too late is not an error. Callable from any thread."""
        # A cost that comes too late is a warning.
        if not self.finished or frame["type"] in ("cost", "cost_trace"):
            self._worker.emit(self, frame)

    def invoke(self):
        """Call the handler. May return an awaitable."""
        if isinstance(self.handler, Handler):
            written = None if self.payload is None else protocol.written_arguments(self.payload)
            return self.handler.invoke(self.arguments, self.context, written)
        return self.handler()

    @property
    def application(self):
        return self._worker.application

    @property
    def is_state(self):
        return not isinstance(self.handler, Handler)


class Worker:
    """Serves the calls that arrive on one socket."""

    def __init__(self, connection, loop, has_threads=False):
        self._socket = connection
        self._loop = loop
        self._reader = protocol.FrameReader()
        self._incoming = memoryview(bytearray(READ_SIZE))
        self._main_thread = threading.get_ident()
        self._is_here = processes.Original().is_here
        self._forked = False
        self._unforked = threading.local()  # the signals that a thread had blocked before it forked
        self._handlers = {}
        self._states = {}
        self._active = {}
        self._threads = threads.Threads(self._run_in_thread) if has_threads else None
        self._waiting = collections.deque()  # synchronous calls, bounded by what the server has in flight
        self._deferred = []  # frames read by the signal handler, for the loop
        self._context = contextvars.copy_context()
        self._running = None  # the synchronous call that holds the main thread
        self._reading_in_signal = False
        self._signalled = False
        self._critical = 0  # above zero while the main thread is inside `emit`
        self._postponed = None  # the call to interrupt once it is not
        self._shutting_down = False
        self._trace_context = None
        self.application = None
        self.lifespan_state = None  # what the application's lifespan has yielded
        # What waits to be written. The lock orders writers of all threads.
        self._lock = threading.Lock()
        self._outgoing = bytearray()
        self._writer_armed = False
        self._replies = []
        self._flush_scheduled = False

    # Life

    def start(self):
        """Take part in signals and forks, and watch for the end of the server."""
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._after_fork_in_child
        )
        self._watch_unraisable()
        threading.Thread(target=_exit_on_hang_up, args=(self._socket,), daemon=True).start()
        self.install_signals()

    def use_main_thread(self):
        """Run synchronous handlers on the main thread, one at a time."""
        self._threads = None

    def install_signals(self):
        """Own the signals; once more after loading, in case the application took them."""
        # A terminal or service manager sends these to the whole group. The server decides what they mean
        # for calls in progress. A function, not SIG_IGN, which child processes would inherit.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGUSR1, self._on_signal)

    def serve(self, handlers, states):
        """Serve until told to shut down."""
        owlclaw_worker._worker = self
        self._handlers = handlers
        self._states = states
        langfuse = sys.modules.get("owlclaw.integrations.langfuse")
        self._trace_context = getattr(langfuse, "TraceContext", None)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._on_readable)
        while not (self._shutting_down and not self._active and not self._waiting):
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # A task that a handler left behind wants to end the process. That is not its decision.
                print("ignored %r from a background task" % error, file=sys.stderr)
        self._flush()
        self._drain()

    # Forks by handlers

    def _before_fork(self):
        # A pool may end a child at once, whose handler would still be ours and would ignore it.
        self._unforked.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)

    def _after_fork(self):
        signal.pthread_sigmask(signal.SIG_SETMASK, self._unforked.mask)

    def _after_fork_in_child(self):
        # A child that kept the socket open would hide this worker's death from the server.
        self._forked = True
        self._active.clear()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        try:
            self._socket.close()
            self._loop.abandon()
        except (OSError, AttributeError):  # A handler has broken them, or a later Python has them differently.
            pass
        self._after_fork()

    # Reading

    def _on_readable(self):
        self._signalled = False
        frames = self._read()
        if frames:
            self._accept(frames)

    def _read(self):
        """The frames that have arrived; `None` if nothing has."""
        try:
            data = self._receive()
            return None if data is None else self._feed(data)
        except BaseException as problem:
            # No memory, say, or no stack left. Whoever waits for a call that is lost here must hear of it.
            _end("the worker cannot go on: a frame was lost: %r" % problem)

    def _receive(self):
        if not self._is_here():
            os._exit(0)  # A child that C code has forked.
        try:
            # Into one buffer: a fresh one for each read is large enough for malloc to ask the kernel for it.
            size = self._socket.recv_into(self._incoming)
            data = bytes(self._incoming[:size])
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            data = self._without_server(error)
        if not data:
            os._exit(0)
        return data

    def _feed(self, data):
        try:
            return self._reader.feed(data)
        except protocol.ProtocolError as error:
            _give_up(error)

    def _accept(self, frames):
        self._take_all(frames)
        while self._waiting:
            self._run_sync(self._waiting.popleft())
            deferred, self._deferred = self._deferred, []
            self._take_all(deferred)
        self._maybe_stop()

    def _accept_deferred(self):
        deferred, self._deferred = self._deferred, []
        self._accept(deferred)

    def _take_all(self, frames):
        try:
            for frame in frames:
                self._take(frame)
        except (KeyError, TypeError) as error:
            _give_up("a frame without its members: %r" % error)
        except MemoryError as problem:
            _end("the worker cannot go on: a frame was lost: %r" % problem)

    def _take(self, frame):
        kind = frame["type"]
        if kind in _HANDLED:
            self._start(frame, self._handlers.get((kind, frame["name"])))
        elif kind == "cancel":
            self._cancel(frame["id"])
        elif kind == "state":
            self._start(frame, self._states.get(frame["name"]))
        elif kind == "ping":
            self._reply(protocol.encode_frame({"type": "pong"}))
        elif kind == "shutdown":
            self._shutting_down = True
        elif kind == "answers":
            self._take_answers(frame)
        elif kind == "unreadable":
            reason = "the arguments cannot be read: %s" % frame["reason"]
            self._reply(protocol.error_frame(frame["id"], "invalid_arguments", message=reason))

    def _start(self, frame, handler):
        if handler is None:
            what = "tool" if frame["type"] == "call" else frame["type"]
            message = "there is no %s named %r" % (what, frame["name"])
            self._reply(protocol.error_frame(frame["id"], "no_such_tool", message=message))
            return
        call = _Call(self, frame, handler)
        if self._shutting_down:
            self._reply(protocol.error_frame(call.id, "cancelled", message="the worker is shutting down"))
            return
        self._active[call.id] = call
        if getattr(handler, "is_async", False):
            call.task = self._loop.create_task(self._run_async(call))
        elif self._threads is None:
            self._waiting.append(call)
        else:
            call.gate = threading.Lock()
            try:
                self._threads.take(call)
            except threads.Busy as error:
                call.finished = True
                del self._active[call.id]
                self._reply(protocol.error_frame(call.id, "busy", message=str(error)))

    def _take_answers(self, frame):
        call = self._active.get(frame["id"])
        if call is None or call.asks is None:
            return
        if "ctx" in frame:
            # Another request of the client goes on with it.
            call.context = frame["ctx"]
        call.asks.take(frame)

    def _maybe_stop(self):
        if self._shutting_down and not self._active:
            self._loop.stop()

    # Running

    def _enter(self, call):
        owlclaw_worker._current_call.set(call)
        if self._trace_context is not None:
            try:
                self._trace_context.set_current(self._trace_context(trace_id=_trace_id(call.context)))
            except Exception:  # A convenience for correlation; never a reason to fail a call.
                self._trace_context = None

    async def _run_async(self, call):
        self._enter(call)
        await self._finish_later(call, call.invoke)

    async def _finish_later(self, call, produce):
        """Answer a call with what `produce` returns, or with what the awaitable that it returns yields."""
        call.started = True
        if call.cancel_requested:
            self._finish(call, None, asyncio.CancelledError())
            return
        value = error = None
        # Two levels, because `Interrupted` may strike between an exception and the line that handles it.
        try:
            try:
                call.interruptible = True
                value = produce()
                if inspect.isawaitable(value):
                    value = streams.collected(await value)
                    if inspect.isawaitable(value):
                        value = await value
                call.interruptible = False
            except BaseException as raised:
                call.interruptible = False
                error = raised
        except Interrupted as raised:
            error = raised
        self._finish(call, value, error)
        # Else the exception's traceback and this frame would keep each other alive.
        error = None

    def _run_sync(self, call):
        if call.cancel_requested:
            self._finish(call, None, asyncio.CancelledError())
            return
        self._flush()
        context = contextvars.copy_context()
        call.started = True
        self._critical = 0
        self._running = call
        try:
            value, error = context.run(self._invoke_sync, call)
        except Interrupted as raised:
            value, error = None, raised
        self._running = None
        if error is None and type(value) is not dict and inspect.isawaitable(value):
            # A plain function that returned a coroutine, as decorators do.
            call.started = False
            call.task = context.run(self._loop.create_task, self._finish_later(call, lambda: value))
        else:
            self._finish(call, value, error)
        error = None

    def _invoke_sync(self, call):
        self._enter(call)
        try:
            call.interruptible = True
            if self._signalled:
                # It came between reading the socket and this line.
                self._look_for_cancel(call)
            value = call.invoke()
            call.interruptible = False
            return value, None
        except BaseException as raised:
            call.interruptible = False
            return None, raised

    def _run_in_thread(self, call, context):
        value = error = None
        # As in `_finish_later`.
        try:
            try:
                value, error = context.run(self._invoke_in_thread, call)
            except BaseException as raised:
                error = raised
        except Interrupted as raised:
            error = raised
        while True:
            try:
                with call.gate:
                    call.interruptible = False
                    if call.interrupted:
                        threads.withdraw(call.thread)
                break
            except Interrupted as raised:
                error = raised
        if error is None and type(value) is not dict and inspect.isawaitable(value):
            call.gate = None
            call.started = False
            self._loop.call_soon_threadsafe(self._await_result, call, value, context=context)
        else:
            self._finish(call, value, error)

    def _invoke_in_thread(self, call):
        self._enter(call)
        with call.gate:
            call.started = True
            if call.cancel_requested:
                return None, asyncio.CancelledError()
            call.interruptible = True
        return call.invoke(), None

    def _await_result(self, call, value):
        call.task = self._loop.create_task(self._finish_later(call, lambda: value))

    def _finish(self, call, value, error):
        if self._forked:
            # The handler forked, and this is the child, which has no business here.
            os._exit(0)
        is_here = threading.get_ident() == self._main_thread
        call.finished = True
        if is_here:
            self._active.pop(call.id, None)
        if log_lines.unfinished:
            log_lines.end(call.id)
        try:
            data = _answer(call, value, error)
            if is_here:
                self._reply(data)
            else:
                self._send(data)
        except BaseException as problem:  # Out of memory, say. Whoever waits for the answer must hear of it.
            _end("the worker cannot go on: a call cannot be answered: %r" % problem)
        if is_here:
            if self._shutting_down:
                self._maybe_stop()
            return
        # Not before it is answered: the main thread ends the process when there is no call left.
        self._active.pop(call.id, None)
        if self._shutting_down:
            self._loop.call_soon_threadsafe(self._maybe_stop)

    # Cancelling

    def _cancel(self, call_id):
        call = self._active.get(call_id)
        if call is None or call.cancel_requested:
            return
        call.cancel_requested = True
        if call.asks is not None and call.gate is not None:
            # The loop that its thread runs meanwhile hears of it.
            call.asks.give_up()
        if call.gate is not None:
            self._interrupt_thread(call)
        elif call.task is not None and call.started:
            call.task.cancel()
            if self._current_task() is not call.task:
                # It hears of it by `CancelledError`. The signal may come later, and would strike while it
                # cleans up.
                call.interrupted = True

    def _interrupt_thread(self, call, patience=0.05):
        # In a signal's handler whoever holds the gate may be the code that it has interrupted.
        gate = call.gate
        if gate is not None and gate.acquire(timeout=0 if self._reading_in_signal else patience):
            try:
                if call.interruptible and not call.interrupted:
                    call.interrupted = threads.interrupt(call.thread, Interrupted)
                    if call.woken is not None:
                        call.woken.set()
            finally:
                gate.release()

    def _interrupt_threads_again(self):
        """Where the first attempt met a closed gate, or the exception came to nothing."""
        for call in list(self._active.values()):
            if call.cancel_requested and call.gate is not None:
                self._interrupt_thread(call, patience=0)

    def _on_signal(self, _number, _frame):
        self._signalled = True
        if self._threads is not None:
            self._interrupt_threads_again()
        call = self._running
        if call is None:
            # An asynchronous handler that blocks its loop can be reached all the same.
            task = self._current_task()
            if task is None:
                return  # The loop is about to read the socket itself.
            call = next((one for one in self._active.values() if one.task is task), None)
        # A second signal may interrupt this very function; the first one's turn then reads for both.
        if call is not None and call.interruptible and not self._reading_in_signal:
            self._look_for_cancel(call)

    def _current_task(self):
        try:
            return asyncio.current_task(self._loop)
        except RuntimeError:
            return None

    def _look_for_cancel(self, call):
        self._reading_in_signal = True
        while self._signalled:
            self._signalled = False
            frames = self._read()
            while frames is not None:
                for frame in frames:
                    if frame["type"] == "cancel":
                        self._cancel(frame["id"])
                    else:
                        self._deferred.append(frame)
                frames = self._read()
        self._reading_in_signal = False
        if self._deferred and self._running is None:
            # Not in the context of the handler that was interrupted, which new calls would inherit.
            self._loop.call_soon(self._accept_deferred, context=self._context)
        if call.cancel_requested:
            if self._critical:
                # Half a frame may have been written.
                self._postponed = call
            else:
                self._interrupt(call)

    def _watch_unraisable(self):
        """Notice where `Interrupted` came to nothing, as in a finalizer, and try again with the next signal."""
        report = sys.unraisablehook

        def notice(unraisable):
            if isinstance(unraisable.exc_value, Interrupted):
                if unraisable.exc_value.call is not None:
                    unraisable.exc_value.call.interrupted = False
            else:
                report(unraisable)

        sys.unraisablehook = notice

    def _interrupt(self, call):
        self._postponed = None
        if not call.interrupted:
            call.interrupted = True
            raise Interrupted(call)

    # Writing

    def emit(self, call, frame):
        """Send a frame while a handler runs; `call` is None in a thread that knows of none."""
        if self._forked:
            return
        for text in ("message", "model"):
            if text in frame:
                frame[text] = protocol.shortened(frame[text], protocol.MAX_MESSAGE)
        if threading.get_ident() != self._main_thread:
            data = protocol.encode_frame(frame)
            if call is None or call.gate is None or call.thread != threading.get_ident():
                self._send(data)
                return
            with call.gate:
                if call.cancel_requested and call.interruptible and not call.interrupted:
                    # Whoever says so much may leave no gap for being interrupted.
                    call.interrupted = True
                    raise Interrupted(call)
                if not call.interrupted:
                    self._send(data)
                    return
            # `Interrupted` may be on its way, and must not come when half a frame is written.
            self._loop.call_soon_threadsafe(self._send, data)
            return
        self._critical += 1
        try:
            self._send(protocol.encode_frame(frame))
        finally:
            self._critical -= 1
        if call is not None and self._postponed is call:
            self._interrupt(call)

    def _reply(self, data):
        """Send from the loop. Answers of one round of the loop share a write."""
        self._replies.append(data)
        if not self._active:
            self._flush()
        elif self._running is not None or self._waiting:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self):
        self._flush_scheduled = False
        replies, self._replies = self._replies, []
        if replies:
            self._send(replies[0] if len(replies) == 1 else b"".join(replies))

    def _send(self, data):
        with self._lock:
            if not self._outgoing:
                data = data[self._try_write(data) :]
            if data:
                self._outgoing += data
                self._write_outgoing()
            backlog = len(self._outgoing)
        if backlog > MAX_BACKLOG:
            self._drain()
        elif backlog:
            if threading.get_ident() == self._main_thread:
                self._arm_writer()
            else:
                self._loop.call_soon_threadsafe(self._arm_writer)

    def _try_write(self, data):
        if not self._is_here():
            os._exit(0)  # A child that C code has forked.
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            return self._without_server(error)

    def _without_server(self, error):
        if isinstance(error, ConnectionError):
            os._exit(0)
        _end("the worker cannot go on: a handler has closed or replaced its connection: %s" % error)

    def _write_outgoing(self):
        while self._outgoing:
            written = self._try_write(self._outgoing)
            if not written:
                return
            del self._outgoing[:written]

    def _arm_writer(self):
        if not self._writer_armed:
            self._writer_armed = True
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self):
        with self._lock:
            self._write_outgoing()
            done = not self._outgoing
        if done:
            self._writer_armed = False
            self._loop.remove_writer(self._socket.fileno())

    def _drain(self):
        """Write everything, however long the server takes to read it."""
        while True:
            with self._lock:
                self._write_outgoing()
                if not self._outgoing:
                    return
            poll = select.poll()
            poll.register(self._socket.fileno(), select.POLLOUT)
            poll.poll()


def _give_up(reason):
    """End the process because the server cannot be understood."""
    _end("the server broke the worker protocol: %s" % reason)


def _end(reason):
    """End the process, which can do nothing else any more, and say why."""
    try:
        os.write(2, (reason + "\n").encode("utf-8", "replace"))
    finally:
        os._exit(70)


def _answer(call, value, error):
    """The frame that ends a call."""
    if error is None and call.is_state and not isinstance(value, dict):
        error = TypeError("the provider of state %r returned a %s, not a dict" % (call.name, type(value).__name__))
    check = None if call.is_state else call.handler.check_result
    if error is None and check is not None:
        try:
            value = check(value)
        except BaseException as problem:  # A validator is the application's code.
            error = problem
    if error is None:
        try:
            encode = getattr(call.handler, "encode", None)
            if encode is not None:
                return encode(call.id, value)
            return content.encode(call.id, value) or protocol.encode_result(call.id, value)
        except protocol.Unserializable as problem:
            kind, text = "unserializable", str(problem)
        except protocol.TooLarge as problem:
            kind, text = "too_large", "the result is too large: %s" % problem
        except BaseException as problem:  # Encoding runs the application's code: properties, model_dump.
            return protocol.error_frame(call.id, "unserializable", problem)
        return protocol.error_frame(call.id, kind, message=text, exception=type(value).__name__)
    if isinstance(error, InvalidArgument):
        return protocol.error_frame(call.id, "invalid_arguments", error)
    if call.cancel_requested:
        return protocol.error_frame(call.id, "cancelled", error, message="the call was cancelled")
    if isinstance(error, asking.CannotAsk):
        return protocol.error_frame(call.id, "not_askable", error)
    return protocol.error_frame(call.id, "told" if _is_told(call.handler, error) else "raised", error)


def _is_told(handler, error):
    """Whether an exception has words for the caller. Those of any are told to callers of tools."""
    if isinstance(error, (owlclaw_worker.ResourceError, owlclaw_worker.PromptError)):
        return True
    return isinstance(error, owlclaw_worker.ToolError) and isinstance(handler, Handler) and handler.only_told


def _trace_id(context):
    """What OwlClaw's own traces of the call are found by: the trace that the call is in, else its id."""
    parent = context.get("traceparent")
    return parent[3:35] if isinstance(parent, str) else str(context.get("request_id"))


def _exit_on_hang_up(connection):
    """End the process with its server, whatever the main thread is doing."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0))
    while True:
        for _, event in poll.poll():
            if event & select.POLLNVAL:
                _end("the worker cannot go on: a handler has closed its connection")
            if event:
                os._exit(0)
