"""A relay between clients and a server, which notes who comes back and can hang up itself."""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import dataclass, field

HEAD = re.compile(rb"(?:^|(?<=[}\n]))([A-Z]+) /\S* HTTP/1\.1\r\n(.*?)\r\n\r\n", re.DOTALL)
LAST_EVENT = re.compile(rb"^last-event-id: *(\S*)", re.IGNORECASE | re.MULTILINE)
# The event that says nothing, on a stream that is not a session's own.
PRIMING = re.compile(rb"id: [1-9]\d*-0\n")


@dataclass
class Wire:
    """Listens on `port` for the server on `server`.

    With `cuts`, the connection of a POST is lost once its stream has begun.
    """

    server: int
    cuts: bool
    port: int = 0
    # What clients came back after: the ids of events.
    comebacks: list[str] = field(default_factory=list)
    lost: int = 0

    def __enter__(self) -> Wire:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake who waits for a connection.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.server))
            except OSError:
                near.close()
                continue
            relay = _Relay(self, near, far)
            for pump in (relay.up, relay.down):
                threading.Thread(target=pump, daemon=True).start()


class _Relay:
    """One connection."""

    def __init__(self, wire: Wire, near: socket.socket, far: socket.socket) -> None:
        self.wire, self.near, self.far = wire, near, far
        self.method = b""

    def up(self) -> None:
        unread = b""
        while data := _received(self.near):
            unread += data
            while head := HEAD.search(unread):
                self.method = head[1]
                if last := LAST_EVENT.search(head[2]):
                    self.wire.comebacks.append(last[1].decode())
                unread = unread[head.end() :]
            if not _sent(self.far, data):
                break
        _end(self.far)

    def down(self) -> None:
        seen = b""
        while data := _received(self.far):
            if not _sent(self.near, data):
                break
            seen = (seen + data)[-4096:]
            if self.wire.cuts and self.method == b"POST" and PRIMING.search(seen):
                self.wire.lost += 1
                # Nobody says so to the other side of a lost connection; here both sides learn of it.
                _end(self.far)
                break
        _end(self.near)


def _received(side: socket.socket) -> bytes:
    try:
        return side.recv(65536)
    except OSError:
        return b""


def _sent(side: socket.socket, data: bytes) -> bool:
    try:
        side.sendall(data)
    except OSError:
        return False
    return True


def _end(side: socket.socket) -> None:
    try:
        side.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
