"""Lets the official suites, which know HTTP only, talk to a server that speaks stdio.

    stdio_bridge.py --port N -- PROGRAM [ARGUMENT]...

serves http://127.0.0.1:N/mcp and judges no message: what is POSTed is written to a child's
standard input, one message a line, and what the child writes goes back. When a child writes
anything else, ends too early, or does not end in good order once its input is closed, there is
nothing to carry any more: the bridge says why on its standard error and ends with status 1.

Legacy revisions: every `initialize` starts a child, which is one session, until it is DELETEd.
2026-07-28: all requests share one child, so that tasks and subscriptions outlive a POST. As the
clients' ids and progress tokens are not unique there, the child gets numbers in their place.

What runs through here shows nothing about what stdio has no word for and this file makes up:

* statuses (see `status`), headers of any kind, and whether they agree with the message;
* sessions: their ids, who may use them, DELETE and what comes after it;
* event ids, `retry` and resumption, of which there are none;
* which stream a message belongs to. Answers, progress and subscriptions say it themselves; other
  messages go to the request that was made last and is still open, and changes of lists and
  resources to the GET stream;
* in 2026-07-28, that ids and progress tokens come back as they were;
* what is no JSON object, which is refused here.

Needs nothing but Python 3.10.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import uuid
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

Message = dict[str, Any]

MAX_HEAD_BYTES = 64 << 10
MAX_MESSAGE_BYTES = 16 << 20
MAX_CHILDREN = 200
# Messages that a session keeps for a GET that is yet to come; older ones are lost.
MAX_HELD_MESSAGES = 100
EXIT_SECONDS = 5

PREFIX = "io.modelcontextprotocol/"
VERSION = PREFIX + "protocolVersion"
CAPABILITIES = PREFIX + "clientCapabilities"
SUBSCRIPTION = PREFIX + "subscriptionId"

# In legacy revisions these belong to no request.
OF_NO_REQUEST = {
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
}


class Refused(Exception):
    """What the bridge answers itself."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def inner(message: Message, *path: str) -> Any:
    """What lies at `path`, and None where there is nothing."""
    found: Any = message
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def key_of(identifier: Any) -> str:
    """1 and "1" are two."""
    return json.dumps(identifier)


def is_request(message: Message) -> bool:
    return "method" in message and "id" in message


def status(request: Message, response: Message) -> HTTPStatus:
    """What the specification wants to see when the response is an error of 2026-07-28."""
    code = inner(response, "error", "code")
    if code == -32601:
        return HTTPStatus.NOT_FOUND
    if code in (-32700, -32600, -32020, -32021, -32022):
        return HTTPStatus.BAD_REQUEST
    meta = inner(request, "params", "_meta") or {}
    if code == -32602 and not (VERSION in meta and CAPABILITIES in meta):
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.OK


class Stream:
    """Where the messages for one HTTP request wait to be sent; None is the end of them."""

    def __init__(self, request: Message) -> None:
        self.request = request
        self.queue: asyncio.Queue[Message | None] = asyncio.Queue()

    def put(self, message: Message | None) -> None:
        self.queue.put_nowait(message)


class Child:
    """A server, and the requests that it is to answer, the latest last."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self.fail = fail
        self.open: dict[str, Stream] = {}
        self.process: asyncio.subprocess.Process
        self.reading: asyncio.Task[None]
        self.ending = False

    async def start(self, command: list[str]) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_MESSAGE_BYTES,
        )
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while line := await self.process.stdout.readline():
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError("is no object")
                self.hear(message)
        except ValueError as wrong:
            self.fail(f"a server wrote what is no message: {wrong}")
        else:
            if not self.ending:
                self.fail("a server ended its output")
        for stream in self.open.values():
            stream.put(None)

    def hear(self, message: Message) -> None:
        raise NotImplementedError

    def request(self, message: Message) -> tuple[str, Stream]:
        """Sends a request; its key and where its answer will be."""
        raise NotImplementedError

    def tell(self, message: Message) -> None:
        """Sends what has no answer."""
        raise NotImplementedError

    def leave(self, key: str) -> None:
        """The client of a request has gone."""
        raise NotImplementedError

    def send(self, message: Message) -> None:
        if self.ending or self.reading.done():
            raise Refused(HTTPStatus.BAD_GATEWAY, "the server is gone")
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        self.process.stdin.write(line.encode() + b"\n")

    def latest(self) -> Stream | None:
        return next(reversed(self.open.values()), None)

    async def end(self) -> None:
        self.ending = True
        self.process.stdin.close()
        try:
            code = await asyncio.wait_for(self.process.wait(), EXIT_SECONDS)
            if code:
                self.fail(f"a server ended with {code}")
        except asyncio.TimeoutError:
            self.fail(f"a server did not end within {EXIT_SECONDS} s of its input")


class Session(Child):
    """A legacy session, with a child of its own."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        super().__init__(fail)
        self.listener: Stream | None = None
        self.held: deque[Message] = deque(maxlen=MAX_HELD_MESSAGES)

    def request(self, message: Message) -> tuple[str, Stream]:
        key = key_of(message["id"])
        stream = Stream(message)
        self.send(message)
        self.open[key] = stream
        return key, stream

    def tell(self, message: Message) -> None:
        self.send(message)
        if message.get("method") == "notifications/cancelled":
            if stream := self.open.get(key_of(inner(message, "params", "requestId"))):
                stream.put(None)

    def leave(self, key: str) -> None:
        # It may come back, but there is nothing here to come back to.
        self.open.pop(key, None)

    def listen(self) -> Stream:
        self.listener = Stream({})
        while self.held:
            self.listener.put(self.held.popleft())
        return self.listener

    def hear(self, message: Message) -> None:
        stream = None
        method = message.get("method")
        if method is None:
            stream = self.open.pop(key_of(message.get("id")), None)
        elif method == "notifications/progress":
            token = key_of(inner(message, "params", "progressToken"))
            for candidate in self.open.values():
                if key_of(inner(candidate.request, "params", "_meta", "progressToken")) == token:
                    stream = candidate
        elif method not in OF_NO_REQUEST:
            stream = self.latest()
        if stream := stream or self.listener:
            stream.put(message)
        else:
            self.held.append(message)


class Shared(Child):
    """The child of all requests of 2026-07-28."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        super().__init__(fail)
        self.last_number = 0

    def request(self, message: Message) -> tuple[str, Stream]:
        self.last_number += 1
        number = self.last_number
        carried = {**message, "id": number}
        if inner(message, "params", "_meta", "progressToken") is not None:
            meta = {**message["params"]["_meta"], "progressToken": number}
            carried["params"] = {**message["params"], "_meta": meta}
        stream = Stream(message)
        self.send(carried)
        self.open[key_of(number)] = stream
        return key_of(number), stream

    def tell(self, message: Message) -> None:
        # Over HTTP nothing is cancelled by a message, so none has an id that is ours.
        self.send(message)

    def leave(self, key: str) -> None:
        if self.open.pop(key, None) and not self.ending:
            params = {"requestId": json.loads(key)}
            self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def hear(self, message: Message) -> None:
        method = message.get("method")
        params = message.get("params")
        if method is None:
            stream = self.open.pop(key_of(message.get("id")), None)
            place, name = message, "id"
        elif method == "notifications/progress":
            place, name = params, "progressToken"
            stream = self.open.get(key_of(inner(message, "params", name)))
        elif method == "notifications/cancelled":
            place, name = params, "requestId"
            stream = self.open.get(key_of(inner(message, "params", name)))
        elif (number := inner(message, "params", "_meta", SUBSCRIPTION)) is not None:
            place, name = params["_meta"], SUBSCRIPTION
            stream = self.open.get(key_of(number))
        else:
            place, name, stream = None, None, self.latest()
        if stream is None:
            # Whoever it is for has gone.
            return
        if place is not None:
            mine = place[name]
            asked = stream.request
            token = inner(asked, "params", "_meta", "progressToken")
            place[name] = token if name == "progressToken" else asked["id"]
            # The last answer of a subscription names it as well.
            if inner(message, "result", "_meta", SUBSCRIPTION) == mine:
                message["result"]["_meta"][SUBSCRIPTION] = asked["id"]
        stream.put(message)


class Client:
    """One connection, which carries one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> tuple[str, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if "transfer-encoding" in headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "say the length")
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= MAX_MESSAGE_BYTES:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too long")
        return first.split(" ")[0], headers, await self.reader.readexactly(length)

    def begin(self, status: HTTPStatus, **headers: str) -> None:
        # The end of the connection is the end of the body.
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def say(self, status: HTTPStatus, body: bytes = b"", **headers: str) -> None:
        self.begin(status, Content_Length=str(len(body)), **headers)
        self.writer.write(body)

    async def carry(self, stream: Stream, modern: bool, **headers: str) -> bool:
        """Sends what comes by `stream`; whether the client was there until the end."""
        gone = asyncio.create_task(self.reader.read(1))
        begun = False
        try:
            if not stream.request:
                self.begin(HTTPStatus.OK, Content_Type="text/event-stream", **headers)
                begun = True
            while True:
                coming = asyncio.create_task(stream.queue.get())
                await asyncio.wait({gone, coming}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    return False
                message = coming.result()
                last = message is None or (bool(stream.request) and "method" not in message)
                if last and not begun:
                    if message is None:
                        raise Refused(HTTPStatus.BAD_GATEWAY, "there will be no answer")
                    body = json.dumps(message, ensure_ascii=False).encode()
                    found = status(stream.request, message) if modern else HTTPStatus.OK
                    self.say(found, body, Content_Type="application/json", **headers)
                    return True
                if not begun:
                    self.begin(HTTPStatus.OK, Content_Type="text/event-stream", **headers)
                    begun = True
                if message is not None:
                    data = json.dumps(message, ensure_ascii=False)
                    self.writer.write(f"event: message\ndata: {data}\n\n".encode())
                if last:
                    return True
        finally:
            gone.cancel()


class Bridge:
    """All children, and who talks to which."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.sessions: dict[str, Session] = {}
        self.shared: asyncio.Task[Shared] | None = None
        self.done = asyncio.Event()
        self.failed = False

    def fail(self, why: str) -> None:
        print(why, file=sys.stderr, flush=True)
        self.failed = True
        self.done.set()

    async def end(self) -> None:
        children: list[Child] = [*self.sessions.values()]
        if self.shared is not None:
            children.append(await self.shared)
        await asyncio.gather(*(child.end() for child in children))

    async def start_shared(self) -> Shared:
        child = Shared(self.fail)
        await child.start(self.command)
        return child

    async def choose(self, message: Message, headers: dict[str, str]) -> tuple[Child, dict[str, str]]:
        """The child that is meant, and the headers its client shall see."""
        modern = inner(message, "params", "_meta", VERSION) is not None
        if not modern and (name := headers.get("mcp-session-id")):
            return self.session(name), {}
        if not modern and message.get("method") == "initialize":
            if len(self.sessions) >= MAX_CHILDREN:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many sessions")
            session = Session(self.fail)
            await session.start(self.command)
            name = uuid.uuid4().hex
            self.sessions[name] = session
            return session, {"Mcp_Session_Id": name}
        if self.shared is None:
            self.shared = asyncio.create_task(self.start_shared())
        return await asyncio.shield(self.shared), {}

    def session(self, name: str) -> Session:
        if session := self.sessions.get(name):
            return session
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such session")

    async def post(self, client: Client, headers: dict[str, str], body: bytes) -> None:
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "only objects are carried")
        child, told = await self.choose(message, headers)
        if not is_request(message):
            child.tell(message)
            client.say(HTTPStatus.ACCEPTED, **told)
            return
        key, stream = child.request(message)
        if not await client.carry(stream, isinstance(child, Shared), **told):
            child.leave(key)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(reader, writer)
        try:
            method, headers, body = await client.read()
            name = headers.get("mcp-session-id", "")
            if method == "POST":
                await self.post(client, headers, body)
            elif method == "GET" and name:
                session = self.session(name)
                stream = session.listen()
                await client.carry(stream, modern=False)
                if session.listener is stream:
                    session.listener = None
            elif method == "DELETE" and name:
                session = self.session(name)
                del self.sessions[name]
                client.say(HTTPStatus.OK)
                await session.end()
            else:
                raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "there is no session")
        except Refused as refused:
            client.say(refused.status, str(refused).encode(), Content_Type="text/plain")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # The client has gone, or the bridge ends.
            pass
        finally:
            writer.close()


async def run(port: int, command: list[str]) -> int:
    bridge = Bridge(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, bridge.done.set)
    server = await asyncio.start_server(bridge.serve, "127.0.0.1", port, limit=MAX_HEAD_BYTES)
    await bridge.done.wait()
    server.close()
    await bridge.end()
    return 1 if bridge.failed else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, required=True, help="where to listen, on 127.0.0.1")
    parser.add_argument("command", nargs="+", help="the server, which speaks stdio")
    arguments = parser.parse_args()
    sys.exit(asyncio.run(run(arguments.port, arguments.command)))


if __name__ == "__main__":
    main()
