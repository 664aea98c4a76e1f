"""A client for tests of an application, which runs its handlers in this process.

    from owlclaw_worker.testing import Client

    def test_adding():
        result = Client(app).call("add", {"a": 1, "b": 2}, principal="anna")
        assert result.value == 3

Arguments are converted and results encoded as a worker does it. What the server does is missing: arguments are
not checked by their schema, and nothing is governed or recorded.
"""

import asyncio
import contextvars
import inspect
import json
import typing

import owlclaw_worker

from . import content, describe, load, protocol, streams
from .call import Handler

__all__ = ["Client", "Result"]


class Result(typing.NamedTuple):
    """What came of a call."""

    value: typing.Any  # the answer as clients read it: made of dict, list, str, int, float, bool and None
    content: typing.List[typing.Dict[str, typing.Any]]  # its blocks of content, as clients get them
    progress: typing.List[typing.Dict[str, typing.Any]]  # reports, with `progress`, `total` and `message`
    messages: typing.List[typing.Dict[str, typing.Any]]  # for the client or the log, with `level` and `message`
    costs: typing.List[typing.Dict[str, typing.Any]]  # with `usd`, `model`, `tokens_in` and `tokens_out`


class _Call:
    """A call as handlers see it."""

    def __init__(self, context, client=None):
        self.id = 1
        self.context = context
        self.finished = False
        self.cancel_requested = False
        self.thread = None
        self.kept = None
        self.asks = None
        self.client = client
        self.frames = []

    def emit(self, frame):
        if frame["type"] == "ask":
            responses, errors = {}, {}
            for key, question in frame["questions"].items():
                try:
                    responses[key] = self.client.answer(question)
                except owlclaw_worker.CannotAsk as error:
                    errors[key] = str(error)
            self.asks.take({"responses": responses, "errors": errors})
        elif frame["type"] == "read":
            why = "resources of the server cannot be read here"
            self.asks.take({"responses": {}, "errors": {frame["key"]: why}})
        else:
            self.frames.append(frame)


class Client:
    """Calls the handlers of an application."""

    def __init__(
        self,
        app: typing.Any,
        elicit: typing.Optional[typing.Callable[..., typing.Any]] = None,
        sample: typing.Optional[typing.Callable[..., typing.Any]] = None,
        roots: typing.Optional[typing.Sequence[str]] = None,
    ) -> None:
        """A client that answers questions: `elicit(message, schema_or_url)` returns the content of a form, `True`, or
        `None` to decline; `sample(params)` returns a text; `roots` are URIs. What is left out it cannot be asked.
        """
        self._elicit, self._sample, self._roots = elicit, sample, roots
        application = load.Application(app, "", [])
        self._handlers = {name: Handler(name, function) for name, function in application.handlers().items()}

    def answer(self, question: typing.Dict[str, typing.Any]) -> typing.Dict[str, typing.Any]:
        """The answer to a question. Raises `CannotAsk`."""
        kind = question["kind"]
        if kind in ("form", "url") and self._elicit is not None:
            said = self._elicit(question["message"], question.get("schema", question.get("url")))
            if said is None or said is False:
                return {"action": "decline"}
            return {"action": "accept", **({"content": said} if kind == "form" else {})}
        if kind == "sample" and self._sample is not None:
            text = self._sample(question["params"])
            return {"role": "assistant", "model": "test", "content": {"type": "text", "text": text}}
        if kind == "roots" and self._roots is not None:
            return {"roots": [{"uri": uri} for uri in self._roots]}
        raise owlclaw_worker.CannotAsk("this test's client does not answer questions of the kind %r" % kind)

    def tools(self) -> typing.List[typing.Dict[str, typing.Any]]:
        """The tools as they are described to the server."""
        return [describe.describe(handler, ".", []) for handler in self._handlers.values()]

    def call(
        self,
        name: str,
        arguments: typing.Optional[typing.Mapping[str, typing.Any]] = None,
        principal: str = "tester",
        roles: typing.Sequence[str] = (),
        request_id: str = "test",
    ) -> Result:
        """Call a tool. Raises what its handler raises."""
        return asyncio.run(self.acall(name, arguments, principal, roles, request_id))

    async def acall(
        self,
        name: str,
        arguments: typing.Optional[typing.Mapping[str, typing.Any]] = None,
        principal: str = "tester",
        roles: typing.Sequence[str] = (),
        request_id: str = "test",
    ) -> Result:
        """Call a tool where an event loop runs. Raises what its handler raises."""
        handler = self._handlers.get(name)
        if handler is None:
            raise LookupError("there is no tool named %r; there are %s" % (name, ", ".join(sorted(self._handlers))))
        if handler.signature.refusals:
            raise ValueError("the tool %r is not offered: %s" % (name, "; ".join(handler.signature.refusals)))
        call = _Call({"client_id": principal, "roles": list(roles), "request_id": request_id}, self)
        # What a client sends is JSON.
        sent = json.loads(protocol.encode_value(dict(arguments or {})))

        def invoke():
            owlclaw_worker._current_call.set(call)
            positional, keywords = handler.bind(sent, call.context)
            return streams.collected(handler.function(*positional, **keywords))

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
        call.finished = True
        if handler.check_result is not None:
            value = handler.check_result(value)
        return _result(value, call.frames)


def _result(value, frames):
    said = content.encode(1, value)
    if said is None:
        plain = json.loads(protocol.encode_value(value))
        blocks = [protocol.as_text(plain)]
    else:
        whole = json.loads(said[4:])["value"]
        plain, blocks = whole.get("structured"), whole["content"]

    def of(kind):
        return [{key: one for key, one in frame.items() if key not in ("type", "id")} for frame in frames if frame["type"] == kind]

    return Result(plain, blocks, of("progress"), of("log"), of("cost"))
