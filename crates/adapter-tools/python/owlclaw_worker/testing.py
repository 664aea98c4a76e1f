"""A client for tests of an application, which runs its handlers in this process.

    from owlclaw_worker.testing import Client

    def test_adding():
        result = Client(app).call("add", {"a": 1, "b": 2}, principal="anna")
        assert result.value == 3

Arguments are converted and results encoded as a worker does it. What does not fit the
schemas of a tool is refused, and nothing is governed or recorded.
"""

import asyncio
import collections.abc
import contextlib
import contextvars
import inspect
import json
import typing

import owlclaw_worker

from . import around, constraints, content, describe, judge, load, offers, protocol, streams, templates
from .call import Handler
from .context import Sessions

__all__ = ["Client", "Result"]

# Applications that are imported from here on find `owlclaw`, with the decorators that the server gives it.
load.provide()


class Result(typing.NamedTuple):
    """What came of a call."""

    value: typing.Any  # the answer as clients read it: made of dict, list, str, int, float, bool and None
    content: typing.List[typing.Dict[str, typing.Any]]  # its blocks of content, as clients get them
    progress: typing.List[typing.Dict[str, typing.Any]]  # reports, with `progress`, `total` and `message`
    messages: typing.List[typing.Dict[str, typing.Any]]  # for the client or the log, with `level` and `message`
    costs: typing.List[typing.Dict[str, typing.Any]]  # with `usd`, `model`, `tokens_in` and `tokens_out`
    is_error: bool = False  # whether the handler has said in full that it failed
    structured: typing.Optional[typing.Dict[str, typing.Any]] = None  # the answer as an object, if it is one


class _Call:
    """A call as handlers see it."""

    def __init__(self, context, client=None):
        self.id = 1
        self.context = context
        self.finished = False
        self.cancel_requested = False
        self.thread = None
        self.kept = None
        self.shown = None
        self.asks = None
        self.client = client
        self.sessions = None if client is None else client._sessions
        self.frames = []
        self.reading = []
        self.failure = None  # what a callback of the test has raised

    @property
    def application(self):
        return None if self.client is None else self.client._app

    async def _read(self, frame):
        uri, key = frame["uri"], frame["key"]
        try:
            parts = await self.client.aread(uri, self.context["client_id"], self.context["roles"])
        except Exception as error:
            self.asks.take({"responses": {}, "errors": {key: "%s was not read: %s" % (uri, error)}})
            return
        contents = [{("mimeType" if name == "mime_type" else name): one for name, one in part.items()} for part in parts]
        self.asks.take({"responses": {key: {"contents": [{"uri": uri, **part} for part in contents]}}, "errors": {}})

    def emit(self, frame):
        if frame["type"] == "ask":
            responses, errors = {}, {}
            for key, question in frame["questions"].items():
                try:
                    responses[key] = self.client.answer(question)
                except owlclaw_worker.CannotAsk as error:
                    errors[key] = str(error)
                except BaseException as error:
                    self.failure = error
                    raise
            self.asks.take({"responses": responses, "errors": errors})
        elif frame["type"] == "read":
            # Held on to: a loop keeps no task alive.
            self.reading.append(asyncio.get_running_loop().create_task(self._read(frame)))
        else:
            self.frames.append(frame)


_SIGNATURES = {"elicit": "(message, schema_or_url)", "sample": "(params)"}


def _kind_of(said):
    if inspect.iscoroutine(said):
        said.close()  # Else Python warns that it was never awaited.
        return "coroutine; write it with `def`"
    return type(said).__name__


class Client:
    """Calls the handlers of an application."""

    def __init__(
        self,
        app: typing.Any,
        elicit: typing.Optional[typing.Callable[..., typing.Any]] = None,
        sample: typing.Optional[typing.Callable[..., typing.Any]] = None,
        roots: typing.Optional[typing.Sequence[str]] = None,
    ) -> None:
        """A client that answers questions: `elicit(message, schema_or_url)` returns the content of a form (a dictionary),
        `True` to accept an address or a form without content, or `None` to decline; `sample(params)` returns a text;
        `roots` are URIs. What is left out it cannot be asked. What a function raises, a failing `assert` too, the call raises.
        """
        for name, function in (("elicit", elicit), ("sample", sample)):
            if function is not None and not callable(function):
                raise TypeError("%s is a function, %s: not a %s" % (name, _SIGNATURES[name], type(function).__name__))
        if roots is not None and (isinstance(roots, (str, bytes)) or not isinstance(roots, collections.abc.Iterable)):
            raise TypeError("roots is a list of URIs, not a %s" % type(roots).__name__)
        roots = None if roots is None else [str(uri) for uri in roots]
        self._elicit, self._sample, self._roots = elicit, sample, roots
        application = load.Application(app, "", [])
        self._app = app
        self._sessions = Sessions()
        self._handlers = {name: Handler(name, function) for name, function in application.handlers().items()}
        offered = offers.of(app)
        self._resources, self._prompts, self._completions = offered.resources, offered.prompts, offered.completions
        parts = (("call", self._handlers), ("resource", self._resources), ("prompt", self._prompts))
        for kind, handlers in parts if offered.middleware else ():
            for name, handler in handlers.items():
                handler.chain = around.chain(kind, name, offered.middleware)

    def answer(self, question: typing.Dict[str, typing.Any]) -> typing.Dict[str, typing.Any]:
        """The answer to a question. Raises `CannotAsk`."""
        kind = question["kind"]
        if kind in ("form", "url") and self._elicit is not None:
            said = self._elicit(question["message"], question.get("schema", question.get("url")))
            if said is None or said is False:
                return {"action": "decline"}
            if said is True:
                return {"action": "accept", **({"content": {}} if kind == "form" else {})}
            if kind == "form" and isinstance(said, dict):
                # What a client sends is JSON.
                return {"action": "accept", "content": json.loads(protocol.encode_value(said))}
            wanted = "a dictionary, True or None" if kind == "form" else "True or None"
            raise TypeError("elicit%s returns %s: not a %s" % (_SIGNATURES["elicit"], wanted, _kind_of(said)))
        if kind == "sample" and self._sample is not None:
            text = self._sample(question["params"])
            if not isinstance(text, str):
                raise TypeError("sample%s returns a text: not a %s" % (_SIGNATURES["sample"], _kind_of(text)))
            return {"role": "assistant", "model": "test", "content": {"type": "text", "text": text}}
        if kind == "roots" and self._roots is not None:
            return {"roots": [{"uri": uri} for uri in self._roots]}
        raise owlclaw_worker.CannotAsk("this test's client does not answer questions of the kind %r" % kind)

    def tools(self) -> typing.List[typing.Dict[str, typing.Any]]:
        """The tools as they are described to the server."""
        return [describe.describe(handler, ".", []) for handler in self._handlers.values()]

    @contextlib.asynccontextmanager
    async def running(self) -> typing.AsyncIterator["Client"]:
        """The client while the lifespan of the application goes on: `async with Client(app).running() as client:`."""
        lifespan = offers.Lifespan(self._app, None)
        before = owlclaw_worker._worker
        await lifespan.enter()
        owlclaw_worker._worker = _Serving(lifespan.state)
        try:
            yield self
        finally:
            owlclaw_worker._worker = before
            await lifespan.leave()

    def read(self, uri: str, principal: str = "tester", roles: typing.Sequence[str] = ()) -> typing.List[typing.Dict[str, typing.Any]]:
        """Read a resource: its parts, each with `text` or `blob`, and `mime_type`."""
        return asyncio.run(self.aread(uri, principal, roles))

    async def aread(
        self, uri: str, principal: str = "tester", roles: typing.Sequence[str] = ()
    ) -> typing.List[typing.Dict[str, typing.Any]]:
        """Read a resource where an event loop runs."""
        # What has the very address comes before families.
        for template, handler in sorted(self._resources.items(), key=lambda one: one[1].is_template):
            arguments = templates.match(template, uri)
            if arguments is not None:
                said = await self._asked(handler, arguments, {"client_id": principal, "roles": list(roles), "request_id": "test", "transport": "stdio"})
                return typing.cast(typing.List[typing.Dict[str, typing.Any]], said["contents"])
        raise LookupError("there is no resource at %r; there are %s" % (uri, ", ".join(sorted(self._resources))))

    def prompt(
        self, name: str, arguments: typing.Optional[typing.Mapping[str, str]] = None, principal: str = "tester"
    ) -> typing.List[typing.Dict[str, typing.Any]]:
        """Fill in a prompt, with arguments as texts, as clients send them: its messages."""
        return asyncio.run(self.aprompt(name, arguments, principal))

    async def aprompt(
        self, name: str, arguments: typing.Optional[typing.Mapping[str, str]] = None, principal: str = "tester"
    ) -> typing.List[typing.Dict[str, typing.Any]]:
        """Fill in a prompt where an event loop runs."""
        if name not in self._prompts:
            raise LookupError("there is no prompt named %r; there are %s" % (name, ", ".join(sorted(self._prompts))))
        context = {"client_id": principal, "roles": [], "request_id": "test", "transport": "stdio"}
        said = await self._asked(self._prompts[name], dict(arguments or {}), context)
        return typing.cast(typing.List[typing.Dict[str, typing.Any]], said["messages"])

    def complete(
        self, of_what: str, argument: str, value: str = "", known: typing.Optional[typing.Mapping[str, str]] = None
    ) -> typing.List[str]:
        """Suggested values of an argument of a prompt or of a template of resources."""
        return asyncio.run(self.acomplete(of_what, argument, value, known))

    async def acomplete(
        self, of_what: str, argument: str, value: str = "", known: typing.Optional[typing.Mapping[str, str]] = None
    ) -> typing.List[str]:
        """Suggested values, where an event loop runs."""
        handler = self._completions.get("%s\n%s" % (of_what, argument)) or self._completions.get("")
        if handler is None:
            return []
        is_template = "://" in of_what
        if is_template and not templates.may_be_values(of_what, {**(known or {}), argument: value}):
            return []
        asked = {
            "ref": {"type": "ref/resource", "uri": of_what} if is_template else {"type": "ref/prompt", "name": of_what},
            "argument": {"name": argument, "value": value},
            "context": {"arguments": dict(known or {})},
        }
        said = await self._asked(handler, asked, {"client_id": "tester", "roles": [], "request_id": "test", "transport": "stdio"})
        return typing.cast(typing.List[str], said["values"])

    async def _asked(self, handler, arguments, context):
        call = _Call(context, self)
        value = await _carried_out(handler, arguments, call)
        return json.loads(handler.encode(call.id, value)[4:])["value"]

    def call(
        self,
        name: str,
        arguments: typing.Optional[typing.Mapping[str, typing.Any]] = None,
        principal: str = "tester",
        roles: typing.Sequence[str] = (),
        request_id: str = "test",
        meta: typing.Optional[typing.Mapping[str, typing.Any]] = None,
    ) -> Result:
        """Call a tool. Raises what its handler raises."""
        return asyncio.run(self.acall(name, arguments, principal, roles, request_id, meta))

    async def acall(
        self,
        name: str,
        arguments: typing.Optional[typing.Mapping[str, typing.Any]] = None,
        principal: str = "tester",
        roles: typing.Sequence[str] = (),
        request_id: str = "test",
        meta: typing.Optional[typing.Mapping[str, typing.Any]] = None,
    ) -> Result:
        """Call a tool where an event loop runs. Raises what its handler raises."""
        handler = self._handlers.get(name)
        if handler is None:
            raise LookupError("there is no tool named %r; there are %s" % (name, ", ".join(sorted(self._handlers))))
        if handler.signature.refusals:
            raise ValueError("the tool %r is not offered: %s" % (name, "; ".join(handler.signature.refusals)))
        context = {"client_id": principal, "roles": list(roles), "request_id": request_id, "transport": "stdio"}
        if meta is not None:
            context["meta"] = json.loads(protocol.encode_value(dict(meta)))
        call = _Call(context, self)
        # What a client sends is JSON.
        sent = json.loads(protocol.encode_value(dict(arguments or {})))
        described = describe.describe(handler, ".", [])
        sent = _checked(described["input_schema"], _meant(described, sent))

        value = await _carried_out(handler, sent, call)
        if handler.check_result is not None:
            value = handler.check_result(value)
        result = _result(value, call.frames)
        if described["output_schema"] is not None and not result.is_error:
            _check_promise(described["output_schema"], result.structured)
        return result


def _check_promise(schema, structured):
    """What the server does not let through to clients either."""
    if structured is None:
        raise owlclaw_worker.ToolError("the tool promises an object, and its answer is none")
    try:
        _judged(schema, structured)
    except constraints.InvalidArgument as error:
        raise owlclaw_worker.ToolError("the tool's answer does not fit its own schema: %s" % error) from None


def _meant(described, arguments):
    """The arguments without the name of the parameter that gets them all, as the server reads them."""
    properties, whole = described["input_schema"].get("properties", {}), described["whole"]
    if list(arguments) == [whole] and whole not in properties and isinstance(arguments[whole], dict):
        arguments = arguments[whole]
    for name in (whole, *described["aliased"]):
        if name in arguments and name not in properties:
            raise constraints.InvalidArgument("/" + name, "is no argument")
    return arguments


def _checked(schema, arguments):
    """The arguments as the server lets them through. Without the package jsonschema formats are not looked at."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    # Null for what may be left out and cannot be null counts as left out.
    kept = {
        name: value
        for name, value in arguments.items()
        if value is not None or name in required or "null" in json.dumps(properties.get(name, "null"))
    }
    for name in required:
        if name not in kept:
            raise constraints.InvalidArgument("/" + name, "is missing")
    if schema.get("additionalProperties", True) is False:
        for name in kept:
            if name not in properties:
                raise constraints.InvalidArgument("/" + name, "is no argument; there are %s" % ", ".join(properties))
    _judged(schema, kept)
    return kept


def _judged(schema, value):
    try:
        import jsonschema
    except ImportError:
        judge.check(schema, schema.get("$defs", {}), value, "")
        return
    for error in jsonschema.Draft202012Validator(schema).iter_errors(value):
        raise constraints.InvalidArgument("".join("/%s" % part for part in error.absolute_path), error.message)


class _Serving:
    """What a context finds the state of the lifespan in."""

    def __init__(self, state):
        self.lifespan_state = state

    def emit(self, call, frame):
        """Pass over what belongs to no call."""


async def _carried_out(handler, arguments, call):
    """What a handler answers, run as a worker runs it."""

    try:
        value = await _run(handler, arguments, call)
    finally:
        call.finished = True
        if call.failure is not None:
            # Whatever the handler has made of it, the test has failed.
            raise call.failure
    return value


async def _run(handler, arguments, call):
    def invoke():
        owlclaw_worker._current_call.set(call)
        return handler.invoke(arguments, call.context)

    async def run():
        value = invoke()
        if inspect.isawaitable(value):
            value = streams.collected(await value)
            if inspect.isawaitable(value):
                value = await value
        return value

    if handler.is_async:
        value = await asyncio.ensure_future(run())
    else:
        # In a thread, as in a worker, where it may run a loop of its own.
        context = contextvars.copy_context()
        value = await asyncio.get_running_loop().run_in_executor(None, context.run, invoke)
        if inspect.isawaitable(value):
            context.run(owlclaw_worker._current_call.set, call)
            value = await value
    return value


def _result(value, frames):
    said = content.encode(1, value)
    is_error = False
    if said is None:
        plain = json.loads(protocol.encode_value(value))
        blocks = [protocol.as_text(plain)]
        structured = plain if isinstance(plain, dict) else None
    else:
        whole = json.loads(said[4:])["value"]
        plain = structured = whole.get("structured")
        blocks, is_error = whole["content"], whole.get("is_error", False)

    def of(kind):
        return [{key: one for key, one in frame.items() if key not in ("type", "id")} for frame in frames if frame["type"] == kind]

    return Result(plain, blocks, of("progress"), of("log"), of("cost"), is_error, structured)
