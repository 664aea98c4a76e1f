"""What a handler may tell the server while it runs.

A handler imports this package if it wants to; it is always importable inside a worker. Outside a call,
for instance in the application's own tests, every function here does nothing:

    import owlclaw_worker

    @app.handler("reindex")
    def reindex(session):
        for done, page in enumerate(pages):
            index(page)
            owlclaw_worker.progress(done, total=len(pages), message=page.title)
        owlclaw_worker.cost("0.002", model="some-model", tokens_in=900, tokens_out=120)

Calls from threads count when the thread runs in a copy of the handler's context, as with
`asyncio.to_thread`.
"""

import sys

# Before anything that older ones do not have.
if sys.version_info < (3, 9):
    sys.exit(
        "OwlClaw MCP needs Python 3.9 or later, and %s is Python %d.%d.%d; name another interpreter: `python:` in the configuration"
        % (sys.executable, *sys.version_info[:3])
    )

import math  # noqa: E402
import re  # noqa: E402
import typing  # noqa: E402
from contextvars import ContextVar  # noqa: E402
from decimal import Decimal, InvalidOperation  # noqa: E402

__all__ = [
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "AssistantMessage",
    "Audio",
    "CallNext",
    "Caller",
    "CancelledElicitation",
    "CannotAsk",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "Context",
    "DeclinedElicitation",
    "Depends",
    "FastMCP",
    "File",
    "Image",
    "Message",
    "Middleware",
    "MiddlewareContext",
    "PromptError",
    "PromptReference",
    "PromptResult",
    "ResourceContent",
    "ResourceError",
    "ResourceResult",
    "ResourceTemplateReference",
    "Root",
    "Tool",
    "ToolError",
    "ToolResult",
    "UserMessage",
    "caller",
    "cancelled",
    "cost",
    "cost_trace",
    "get_context",
    "get_http_headers",
    "log",
    "progress",
    "trace_context",
]

LEVELS = ("debug", "info", "warning", "error")

# Names of traces in Langfuse, which become a part of an address.
_TRACE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

# Amounts with more digits before or after the point are sent with an exponent.
_PLAIN_DIGITS = 40

# The call that the running code belongs to; set by the serving loop.
_current_call = ContextVar("owlclaw_worker_current_call", default=None)

# What serves calls in this process; set by the serving loop.
_worker = None


class ToolError(Exception):
    """A failure of a tool, with words for its caller. Any other exception is one, too."""


class ResourceError(Exception):
    """A failure of a resource, with words for its caller. Those of other exceptions are for the log."""


class PromptError(Exception):
    """A failure of a prompt, with words for its caller. Those of other exceptions are for the log."""


class Caller(typing.NamedTuple):
    """The caller of a handler, as the server has established it. No argument of a call changes it."""

    principal: str  # the name that keys, tokens and certificates stand for
    roles: typing.Tuple[str, ...]  # those that they vouch for
    request_id: str  # which call of the caller's this is; the caller's client has chosen it
    trace: typing.Dict[str, str]  # as `trace_context()` has it


def caller():
    """Return the caller of the running call; `None` outside of calls.

    Callable wherever the handler's context is: in asynchronous and synchronous handlers, and in threads that
    `asyncio.to_thread` starts. A thread that is started otherwise has to be told.
    """
    call = _current_call.get()
    if call is None:
        return None
    context = call.context
    return Caller(
        str(context.get("client_id")), tuple(context.get("roles") or ()), str(context.get("request_id")), trace_context()
    )


def progress(progress, total=None, message=None):
    """Report how far the call has come: `progress` out of `total`, both finite numbers."""
    frame = {"type": "progress", "id": 0, "progress": _number("progress", progress)}
    if total is not None:
        frame["total"] = _number("total", total)
    if message is not None:
        frame["message"] = str(message)
    _emit(frame)


def cost(usd, model=None, tokens_in=None, tokens_out=None):
    """Add `usd` (a decimal string, Decimal, int or float; not negative) to what the call has cost."""
    _cost(_amount(usd), model, tokens_in, tokens_out)


def cost_trace(trace_id):
    """Say which trace in Langfuse has the cost of the call, for the server to read once the call has ended.

    The first one counts. What the call reports by `cost` is what it costs until then.
    """
    if not isinstance(trace_id, str) or not _TRACE_ID.fullmatch(trace_id):
        raise ValueError("trace_id must be 1 to 128 letters, digits, '-', '_', '.' or ':': %r" % (trace_id,))
    _emit({"type": "cost_trace", "id": 0, "trace_id": trace_id})


def _cost(amount, model, tokens_in, tokens_out):
    frame = {"type": "cost", "id": 0}
    if amount is not None:
        frame["usd"] = amount
    if model is not None:
        frame["model"] = str(model)
    for name, tokens in (("tokens_in", tokens_in), ("tokens_out", tokens_out)):
        if tokens is None:
            continue
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens < 2**63:
            raise ValueError("%s must be a count: %r" % (name, tokens))
        frame[name] = tokens
    _emit(frame)


def _amount(usd):
    try:
        amount = Decimal(str(usd))
    except InvalidOperation:
        raise ValueError("usd is not a decimal number: %r" % (usd,)) from None
    if not amount.is_finite() or amount < 0:
        raise ValueError("usd must be finite and not negative: %r" % (usd,))
    # Written out, an exponent can be a text of gigabytes. The server understands both.
    return format(amount, "f") if abs(amount.adjusted()) < _PLAIN_DIGITS else str(amount)


def log(message, level="info"):
    """Write `message` to the server's log, attributed to this call."""
    if level not in LEVELS:
        raise ValueError("level must be one of %s: %r" % (", ".join(LEVELS), level))
    _emit({"type": "log", "id": 0, "level": level, "message": str(message)})


def cancelled():
    """Whether the caller has given up on this call. For loops in threads, which nothing can interrupt."""
    call = _current_call.get()
    return call is not None and call.cancel_requested


def trace_context():
    """Where in a distributed trace this call is: a new dictionary of `traceparent` and, if there is
    one, `tracestate`, as W3C Trace Context has them; empty where the call is in no trace. It is what
    requests to others have as headers, and what `opentelemetry.propagate.extract` takes.
    """
    call = _current_call.get()
    context = {} if call is None else call.context
    names = ("traceparent", "tracestate")
    return {name: context[name] for name in names if isinstance(context.get(name), str)}


def _emit(frame):
    call = _current_call.get()
    if call is not None:
        frame["id"] = call.id
        call.emit(frame)
    elif frame["type"] in ("cost", "cost_trace") and _worker is not None:
        # For the warning that nobody is charged.
        _worker.emit(None, frame)


def _number(name, value):
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError("%s must be a number: %r" % (name, value))
    # Also refuses integers too large for a float, which no client could read.
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite:
        raise ValueError("%s must be finite: %r" % (name, value))
    return float(value) if isinstance(value, Decimal) else value


from .around import CallNext, Depends, Middleware, MiddlewareContext  # noqa: E402
from .asking import (  # noqa: E402
    AcceptedElicitation,
    AcceptedUrlElicitation,
    CancelledElicitation,
    CannotAsk,
    DeclinedElicitation,
    ResourceContent,
    Root,
)
from .context import Context, current as get_context, headers as get_http_headers  # noqa: E402
from .content import Audio, File, Image, ToolResult  # noqa: E402
from .fastmcp import FastMCP  # noqa: E402
from .offers import (  # noqa: E402
    AssistantMessage,
    Completion,
    CompletionArgument,
    CompletionContext,
    Message,
    PromptReference,
    PromptResult,
    ResourceResult,
    ResourceTemplateReference,
    Tool,
    UserMessage,
)
