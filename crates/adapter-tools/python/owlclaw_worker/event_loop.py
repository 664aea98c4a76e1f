"""The event loop that an application sees while it is imported, and that each forked worker goes on with.

It has to be the same object: on Python 3.9 an `asyncio.Lock` made during the import is bound to the loop
then current, and on all versions modules keep what `asyncio.get_event_loop()` returned. What must not be
shared is what lies below: the selector and the pipe that wakes the loop up.
"""

import asyncio
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

    def forget(self):
        """Drop, in a child that a handler forked, all that the parent's loop was about to do."""
        self.renew()
        self._ready.clear()
        self._scheduled.clear()


def renewed(loop):
    """`loop` made good for the child of a fork, or a new one in its place; set as the current one."""
    try:
        loop.renew()
    except AttributeError:  # A later Python that has these things under other names.
        loop = Loop()
    asyncio.set_event_loop(loop)
    return loop
