"""What a handler that takes a `Context` knows of its call and can tell the client that makes it.

A parameter annotated with `Context` is no argument of the tool: it is filled in here. The names are
FastMCP's. Methods that tell the client something act at once and can be awaited all the same, so that synchronous
handlers use them, too. Those that ask something are awaited; a synchronous handler in a thread has `asyncio.run`
for that.
"""

import collections
import decimal
import opcode
import sys
import threading
import time
import typing

import owlclaw_worker

from . import asking, hints, protocol

_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class _Done:
    """What awaiting gives at once."""

    def __init__(self, value: typing.Any = None) -> None:
        self._value = value

    def __await__(self) -> typing.Generator[None, None, typing.Any]:
        return self._value
        yield  # which makes it a generator


_GET_AWAITABLE = opcode.opmap.get("GET_AWAITABLE", -1)
# What may stand between a call and that.
_BETWEEN = {opcode.opmap["EXTENDED_ARG"], opcode.opmap.get("CACHE", opcode.opmap["EXTENDED_ARG"])}


def _is_awaited(frame: typing.Any) -> bool:
    """Whether the code that `frame` runs awaits what its present call returns.

    FastMCP awaits what it reads since version 3, and did not before. A value cannot be both: `None` cannot be awaited.
    """
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] in _BETWEEN:
        at += 2
    return at < len(code) and bool(code[at] == _GET_AWAITABLE)


# Sessions whose state is kept, those that were used last, and for how long after their last use.
_MAX_SESSIONS = 1000
_SESSION_SECONDS = 24 * 60 * 60


class Sessions:
    """What handlers keep for the sessions of their clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: typing.Any = collections.OrderedDict()

    def of(self, key: typing.Tuple[str, str]) -> typing.Dict[str, typing.Any]:
        """What is kept for a session."""
        now = time.monotonic()
        with self._lock:
            kept, used = self._found.pop(key, ({}, now))
            if now - used > _SESSION_SECONDS:
                kept = {}
            self._found[key] = kept, now
            while len(self._found) > _MAX_SESSIONS:
                self._found.popitem(last=False)
        return typing.cast(typing.Dict[str, typing.Any], kept)


_sessions = Sessions()

# Names that FastMCP has for transports.
_TRANSPORTS = {"http": "streamable-http"}


_T = typing.TypeVar("_T")
_Text = typing.Optional[str]
_Extra = typing.Optional[typing.Mapping[str, typing.Any]]
_Number = typing.Union[int, float, decimal.Decimal]


class Meta(typing.Dict[str, typing.Any]):
    """Metadata of a request: a dictionary whose members are attributes, too, as those of the SDK's model are."""

    progressToken: typing.Union[str, int, None]
    progress_token: typing.Union[str, int, None]

    def __getattr__(self, name: str) -> typing.Any:
        if name in ("progressToken", "progress_token"):
            return self.get("progressToken")
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def model_extra(self) -> typing.Dict[str, typing.Any]:
        """The members besides the progress token."""
        return {name: value for name, value in self.items() if name != "progressToken"}

    def model_dump(self, **_: typing.Any) -> typing.Dict[str, typing.Any]:
        """A dictionary of the members."""
        return dict(self)


class Context:
    """The running call."""

    def __init__(self, call: typing.Any) -> None:
        self._call = call

    # What is known

    @property
    def request_id(self) -> str:
        """The id of the request, which the client has chosen."""
        return str(self._call.context.get("request_id"))

    @property
    def client_id(self) -> str:
        """The principal who calls, as the server has established it."""
        return str(self._call.context.get("client_id"))

    principal = client_id

    @property
    def roles(self) -> typing.Tuple[str, ...]:
        """The roles that are vouched for."""
        return tuple(self._call.context.get("roles") or ())

    @property
    def session_id(self) -> typing.Optional[str]:
        """The id of the client's session; `None` where there is none, as in the modern revision and over stdio."""
        return self._call.context.get("session")

    @property
    def headers(self) -> typing.Dict[str, str]:
        """Headers of the request over HTTP, of those that `http.pass_headers` names, in lower case. They prove nothing."""
        return dict(self._call.context.get("headers") or {})

    @property
    def lifespan_context(self) -> typing.Any:
        """What the lifespan of the application has yielded; an empty dictionary without one."""
        state = getattr(owlclaw_worker._worker, "lifespan_state", None)
        return {} if state is None else state

    @property
    def request_context(self) -> "Context":
        """Itself, for code that looks there for `lifespan_context` or `request_id`."""
        return self

    @property
    def meta(self) -> "typing.Optional[Meta]":
        """What the client has sent along with its request (`_meta`), as `meta["key"]` or `meta.key`; `None` without.

        `progressToken` is there, too. It proves nothing.
        """
        sent = self._call.context.get("meta")
        return Meta(sent) if isinstance(sent, dict) else None

    @property
    def transport(self) -> typing.Optional[str]:
        """How the request has come: `stdio`, `streamable-http` or `websocket`; `None` where that is not known."""
        name = self._call.context.get("transport")
        return _TRANSPORTS.get(name, name)

    @property
    def fastmcp(self) -> typing.Any:
        """The application."""
        return self._call.application

    def get_state(self, key: str) -> typing.Any:
        """What `set_state` has kept, else `None`: the value itself, and with `await` as well."""
        kept = self._call.kept or {}
        value = kept[key] if key in kept else self._of_session().get(key)
        return _Done(value) if _is_awaited(sys._getframe(1)) else value

    def set_state(self, key: str, value: typing.Any, *, serializable: bool = True) -> _Done:
        """Keep something for the client's session; for the call where there is none, or with `serializable=False`.

        A session is one of HTTP before 2026-07-28; over stdio all connections of a principal are one. It is kept in the memory of this process.
        """
        if serializable and self._session() is not None:
            (self._call.kept or {}).pop(key, None)
            self._of_session()[key] = value
        else:
            if self._call.kept is None:
                self._call.kept = {}
            self._call.kept[key] = value
        return _Done()

    def delete_state(self, key: str) -> _Done:
        """Forget what `set_state` has kept."""
        (self._call.kept or {}).pop(key, None)
        self._of_session().pop(key, None)
        return _Done()

    def _session(self) -> typing.Optional[typing.Tuple[str, str]]:
        context = self._call.context
        session = context.get("session")
        if session is None:
            # A principal, for as long as the process runs.
            return (self.client_id, "") if context.get("transport") == "stdio" else None
        return self.client_id, str(session)

    def _of_session(self) -> typing.Dict[str, typing.Any]:
        session = self._session()
        return {} if session is None else getattr(self._call, "sessions", _sessions).of(session)

    def cancelled(self) -> bool:
        """Whether the caller has given up."""
        return self._call.cancel_requested

    # What is told

    def log(self, message: object, level: str = "info", logger_name: _Text = None, extra: _Extra = None) -> _Done:
        """Tell the client something, if it wants to hear that much."""
        if level not in _LEVELS:
            raise ValueError("level must be one of %s: %r" % (", ".join(_LEVELS), level))
        frame = {"type": "log", "id": self._call.id, "level": level, "message": str(message), "to_client": True}
        if logger_name is not None:
            frame["logger"] = str(logger_name)
        if extra is not None:
            frame["extra"] = protocol.to_plain(extra, infinite_is_null=True)
        self._call.emit(frame)
        return _Done()

    def debug(self, message: object, logger_name: _Text = None, extra: _Extra = None) -> _Done:
        """Tell the client something of level `debug`."""
        return self.log(message, "debug", logger_name, extra)

    def info(self, message: object, logger_name: _Text = None, extra: _Extra = None) -> _Done:
        """Tell the client something of level `info`."""
        return self.log(message, "info", logger_name, extra)

    def warning(self, message: object, logger_name: _Text = None, extra: _Extra = None) -> _Done:
        """Tell the client something of level `warning`."""
        return self.log(message, "warning", logger_name, extra)

    def error(self, message: object, logger_name: _Text = None, extra: _Extra = None) -> _Done:
        """Tell the client something of level `error`."""
        return self.log(message, "error", logger_name, extra)

    def report_progress(
        self, progress: _Number, total: typing.Optional[_Number] = None, message: typing.Optional[object] = None
    ) -> _Done:
        """Report how far the call has come."""
        owlclaw_worker.progress(progress, total, message)
        return _Done()

    # What is asked

    @typing.overload
    async def elicit(self, message: str, response_type: typing.Type[_T]) -> "asking.Elicited[_T]": ...

    @typing.overload
    async def elicit(
        self, message: str, response_type: typing.Any = None, *, schema: typing.Any = None
    ) -> "asking.Elicited[typing.Any]": ...

    async def elicit(self, message: str, response_type: typing.Any = None, *, schema: typing.Any = None) -> typing.Any:
        """Have the user fill in a form, made of a type: a record of plain fields, one such field, or a list of choices.

        Returns an `AcceptedElicitation` with the `data`, a `DeclinedElicitation` or a `CancelledElicitation`.
        Raises `CannotAsk` where the client has no forms.
        """
        wanted, read = asking.form(schema if response_type is None else response_type)
        question = {"kind": "form", "message": str(message), "schema": wanted}
        return asking.elicited(await self._questions().ask("elicit", question), read)

    async def elicit_url(self, message: str, url: str, elicitation_id: _Text = None) -> "asking.UrlElicited":
        """Have the user visit an address, which tells the client nothing of what comes of it."""
        question = {"kind": "url", "message": str(message), "url": str(url)}
        return asking.elicited(await self._questions().ask("elicit", question), None)

    async def sample(
        self,
        messages: typing.Any,
        *,
        system_prompt: _Text = None,
        include_context: _Text = None,
        temperature: typing.Optional[float] = None,
        max_tokens: int = 512,
        model_preferences: typing.Any = None,
        tools: typing.Optional[typing.Sequence[typing.Any]] = None,
        tool_choice: typing.Any = None
    ) -> "asking.SamplingResult":
        """Have the client's model write a message. What it wrote is `text` of the result."""
        params = asking.sampling(
            messages, system_prompt, include_context, temperature, max_tokens, model_preferences, tools, tool_choice
        )
        return asking.sampled(await self._questions().ask("sample", {"kind": "sample", "params": params}))

    async def list_roots(self) -> "typing.List[asking.Root]":
        """The roots of the client, each with `uri` and `name`."""
        return asking.roots(await self._questions().ask("roots", {"kind": "roots"}))

    async def read_resource(self, uri: object) -> "asking.ResourceContents":
        """Read a resource of the server, as the caller of the tool may: parts with `content` and `mime_type`."""
        return asking.resource(await self._questions().read(str(uri)))

    def _questions(self):
        if self._call.finished:
            raise RuntimeError("the call has ended: there is nobody to ask")
        if self._call.asks is None:
            self._call.asks = asking.Questions(self._call)
        return self._call.asks

    def cost(
        self,
        usd: typing.Union[str, _Number],
        model: typing.Optional[object] = None,
        tokens_in: typing.Optional[int] = None,
        tokens_out: typing.Optional[int] = None,
    ) -> _Done:
        """Add to what the call has cost."""
        owlclaw_worker.cost(usd, model, tokens_in, tokens_out)
        return _Done()

    def cost_trace(self, trace_id: str) -> _Done:
        """Say which trace in Langfuse has the cost of the call."""
        owlclaw_worker.cost_trace(trace_id)
        return _Done()


def current() -> Context:
    """The context of the running call. Raises `RuntimeError` outside of calls."""
    call = owlclaw_worker._current_call.get()
    if call is None:
        raise RuntimeError("there is no call here: a Context exists while a handler runs")
    if call.shown is None:
        call.shown = Context(call)
    return call.shown


def headers(include_all: bool = False) -> typing.Dict[str, str]:
    """The headers of the running call's request, as `Context.headers` has them; empty outside of calls.

    `include_all` is taken for code written for FastMCP, and adds none: the configuration says which there are.
    """
    call = owlclaw_worker._current_call.get()
    return {} if call is None else Context(call).headers


def is_context(hint):
    """Whether a parameter of this hint is to be filled in with a context."""
    try:
        hint = hints.peel(hint)[0]
        candidates = typing.get_args(hint) or (hint,)
    except Exception:  # Hints are the application's objects.
        return False
    for one in candidates:
        if isinstance(one, type) and one.__name__ == "Context":
            if one is Context or one.__module__.partition(".")[0] in ("fastmcp", "mcp"):
                return True
    return False
