"""The event loop that an application sees while it is imported, and that each forked worker goes on with.

It has to be the same object: on Python 3.9 an `asyncio.Lock` made during the import is bound to the loop
then current, and on all versions modules keep what `asyncio.get_event_loop()` returned. What must not be
shared is what lies below: the selector and the pipe that wakes the loop up.
"""

import asyncio
import os
import selectors
import signal


class Loop(asyncio.SelectorEventLoop):
    """A selector event loop that survives a fork."""

    def renew(self):
        """Replace, in the child of a fork, what the loop shares with its parent."""
        shared = self._selector
        self._selector = selectors.DefaultSelector()
        for key in list(shared.get_map().values()):
            self._selector.register(key.fileobj, key.events, key.data)
        # Closed, not emptied: the parent's registrations are the same ones.
        shared.close()
        self._close_self_pipe()
        self._make_self_pipe()
        if self._signal_handlers:
            signal.set_wakeup_fd(self._csock.fileno())

    def abandon(self):
        """In a child that a handler forked: share nothing, and end the process where it comes back to the loop."""
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        self._close_self_pipe()
        self._make_self_pipe()
        # The other calls go on in the parent. Here they would happen a second time.
        self._ready.clear()
        self._scheduled.clear()
        self.call_soon(os._exit, 0)
        asyncio._set_running_loop(None)


def renewed(loop):
    """`loop` made good for the child of a fork, or a new one in its place; set as the current one."""
    try:
        loop.renew()
    except AttributeError:  # A later Python that has these things under other names.
        loop = Loop()
    asyncio.set_event_loop(loop)
    return loop
