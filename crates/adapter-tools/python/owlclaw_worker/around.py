"""What runs around a handler in its call: dependencies, which fill in its parameters, and middleware.

The names are FastMCP's. Both run after the server has admitted the call and checked its arguments.
"""

import asyncio
import contextlib
import copy
import dataclasses
import datetime
import inspect
import typing

import owlclaw_worker

from . import hints, streams

__all__ = ["CallNext", "Depends", "Middleware", "MiddlewareContext"]


class Depends:
    """The default of a parameter that is filled in with what a function returns, or a context manager yields.

    The parameter is no argument of the tool. The function may have parameters of this kind itself, and a `Context`; it runs
    once for each call, and its context manager ends with the call.
    """

    def __init__(self, dependency: typing.Callable[..., typing.Any], use_cache: bool = True) -> None:
        if not callable(dependency):
            raise TypeError("Depends() takes a function, not a %s" % type(dependency).__name__)
        self.dependency = dependency
        self.use_cache = use_cache
        function = dependency
        self._is_async = hints.is_async(function)
        if inspect.isasyncgenfunction(function):
            function = contextlib.asynccontextmanager(function)
        elif inspect.isgeneratorfunction(function):
            function = contextlib.contextmanager(function)
        else:
            # Behind the standard decorators for context managers.
            self._is_async = self._is_async or inspect.isasyncgenfunction(hints.underlying(function))
        self._function = function
        self._signature = None

    def __repr__(self):
        return "Depends(%s)" % getattr(self.dependency, "__name__", self.dependency)

    def problem(self, is_async, above=()):
        """Why it cannot be filled in for a handler, if it cannot."""
        if self in above or len(above) > 20:
            return "%r depends on itself" % (self,)
        if self._is_async and not is_async:
            return "%r is asynchronous, and the handler is not: write it with `async def`" % (self,)
        if self._signature is None:
            self._signature = hints.Signature(self.dependency)
        needed = [one.name for one in self._signature.parameters if one.default is hints.MISSING]
        if needed or self._signature.refusals:
            why = "; ".join(self._signature.refusals) or "nothing fills in its parameter %s" % ", ".join(map(repr, needed))
            return "%r cannot be called: %s" % (self, why)
        for other in self._signature.dependencies.values():
            problem = other.problem(is_async, (*above, self))
            if problem is not None:
                return problem
        return None

    def _call(self, resolved):
        arguments = dict(resolved)
        for name in self._signature.contexts:
            arguments[name] = owlclaw_worker.get_context()
        positional = [arguments.pop(one.name, one.default) for one in self._signature.positional]
        return self._function(*positional, **arguments)

    def enter(self, stack, known):
        """Its value; what has to end with the call is left on `stack`."""
        if self.use_cache and self.dependency in known:
            return known[self.dependency]
        others = self._signature.dependencies.items()
        value = self._call({name: one.enter(stack, known) for name, one in others})
        if _is_manager(value):
            value = stack.enter_context(value)
        known[self.dependency] = value
        return value

    async def enter_later(self, stack, known):
        """As `enter`, where what is asynchronous can be awaited."""
        if self.use_cache and self.dependency in known:
            return known[self.dependency]
        resolved = {}
        for name, one in self._signature.dependencies.items():
            resolved[name] = await one.enter_later(stack, known)
        value = self._call(resolved)
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, contextlib.AbstractAsyncContextManager):
            value = await stack.enter_async_context(value)
        elif _is_manager(value):
            value = stack.enter_context(value)
        known[self.dependency] = value
        return value


def _is_manager(value):
    """Tell what a function decorated with `contextmanager` returns, from a value that happens to be one, such as a file."""
    return isinstance(value, contextlib._GeneratorContextManager)


def filled_in(function, dependencies, is_async):
    """`function`, with the parameters that `dependencies` name filled in."""
    if is_async:

        async def run(*positional, **keywords):
            async with contextlib.AsyncExitStack() as stack:
                known = {}
                for name, one in dependencies.items():
                    keywords[name] = await one.enter_later(stack, known)
                return await _settled(function(*positional, **keywords))

        return run

    def run_at_once(*positional, **keywords):
        with contextlib.ExitStack() as stack:
            known = {}
            for name, one in dependencies.items():
                keywords[name] = one.enter(stack, known)
            value = streams.collected(function(*positional, **keywords))
            if inspect.isawaitable(value):
                # A plain function that returned a coroutine, as decorators do.
                return _settled_within(stack.pop_all(), value)
            return value

    return run_at_once


async def _settled(value):
    value = streams.collected(value)
    while inspect.isawaitable(value):
        value = streams.collected(await value)
    return value


async def _settled_within(stack, value):
    with stack:
        return await _settled(value)


# Middleware

_M = typing.TypeVar("_M")
_R = typing.TypeVar("_R")


@dataclasses.dataclass
class Message:
    """What is asked for: the tool, prompt or resource, and its arguments."""

    name: str
    arguments: typing.Dict[str, typing.Any]
    uri: typing.Optional[str] = None


@dataclasses.dataclass
class MiddlewareContext(typing.Generic[_M]):
    """A request on its way to its handler. The parameter is the type of its message, for type checkers."""

    message: _M
    method: str
    fastmcp_context: typing.Any = None
    source: str = "client"
    type: str = "request"
    timestamp: datetime.datetime = dataclasses.field(default_factory=lambda: datetime.datetime.now(datetime.timezone.utc))

    def copy(self, **changes: typing.Any) -> "MiddlewareContext[_M]":
        """The same with other members."""
        return dataclasses.replace(self, **changes)


CallNext = typing.Callable[[MiddlewareContext[_M]], typing.Awaitable[_R]]


class Middleware:
    """What runs around handlers. A subclass overrides `on_call_tool`, `on_read_resource` or `on_get_prompt`, or
    `on_request` or `on_message` for all three.
    """

    async def on_message(self, context: MiddlewareContext[typing.Any], call_next: CallNext[typing.Any, typing.Any]) -> typing.Any:
        """Run around calls, reads and prompts."""
        return await call_next(context)

    async def on_request(self, context: MiddlewareContext[typing.Any], call_next: CallNext[typing.Any, typing.Any]) -> typing.Any:
        """Run around calls, reads and prompts."""
        return await call_next(context)

    async def on_call_tool(self, context: MiddlewareContext[typing.Any], call_next: CallNext[typing.Any, typing.Any]) -> typing.Any:
        """Run around calls of tools."""
        return await call_next(context)

    async def on_read_resource(self, context: MiddlewareContext[typing.Any], call_next: CallNext[typing.Any, typing.Any]) -> typing.Any:
        """Run around reads of resources."""
        return await call_next(context)

    async def on_get_prompt(self, context: MiddlewareContext[typing.Any], call_next: CallNext[typing.Any, typing.Any]) -> typing.Any:
        """Run around uses of prompts."""
        return await call_next(context)


# Methods, hooks and kinds of handlers.
_HOOKS = {
    "call": ("tools/call", "on_call_tool"),
    "resource": ("resources/read", "on_read_resource"),
    "prompt": ("prompts/get", "on_get_prompt"),
}

_RUN = ("on_message", "on_request", *(hook for _, hook in _HOOKS.values()))


def check(middleware):
    """Refuse what would not run: a rule that is silently not in force would be worse than none. Returns warnings."""
    kind = type(middleware)
    found = [name for name in dir(kind) if name.startswith("on_") and getattr(Middleware, name, None) is not getattr(kind, name)]
    never = [name for name in found if name not in _RUN]
    if "__call__" in vars(kind) or not (found or isinstance(middleware, Middleware)):
        never.append("__call__")
    if never:
        raise NotImplementedError(
            "%s of the middleware %s is not run here: lists, the handshake and notifications are the server's, and what "
            "middleware does there (permissions, filters, limits, logging) is the configuration's (`governance`, `logging`)"
            % (", ".join(never), kind.__name__)
        )
    general = [name for name in found if name in ("on_message", "on_request")]
    if general:
        return ["%s of the middleware %s sees calls, reads and prompts, and nothing else" % (", ".join(general), kind.__name__)]
    return []


def _hooks(middlewares, hook):
    """The hooks that are overridden, the outermost first."""
    found = []
    for one in middlewares:
        for name in ("on_message", "on_request", hook):
            own = getattr(type(one), name, None)
            if own is not None and own is not getattr(Middleware, name):
                found.append(getattr(one, name))
    return found


def chain(kind, name, middlewares):
    """What runs a handler of `kind` within its middleware, or None: a coroutine function of the arguments, and of what
    goes on with them.
    """
    if kind not in _HOOKS:
        return None
    method, hook = _HOOKS[kind]
    hooks = _hooks(middlewares, hook)
    if not hooks:
        return None

    async def run(arguments, go_on):
        async def next_of(at, context):
            if at < len(hooks):
                return await hooks[at](context, lambda given: next_of(at + 1, given))
            message = context.message
            if message.name != name:
                raise PermissionError("middleware cannot lead a call to another handler: %r is not %r" % (message.name, name))
            return await go_on(message.arguments)

        # A copy: what it changes inside is told from what was sent.
        message = Message(name, copy.deepcopy(arguments), name if kind == "resource" else None)
        return await next_of(0, MiddlewareContext(message, method, owlclaw_worker.get_context()))

    return run


async def later(chain, arguments, run):
    """Run an asynchronous handler within its middleware."""

    async def go_on(given):
        return await _settled(run(given))

    return await chain(arguments, go_on)


def at_once(chain, arguments, run):
    """Run a synchronous handler within its middleware, in a thread without a loop. The handler itself runs outside of
    the loop of its middleware, so that it may run one of its own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        return _without_waiting(chain, arguments, run)
    loop = asyncio.new_event_loop()
    asked = []

    async def go_on(given):
        answer = loop.create_future()
        asked.append((given, answer))
        loop.stop()
        return await _settled(await answer)

    try:
        task = loop.create_task(chain(arguments, go_on))
        task.add_done_callback(lambda _: loop.stop())
        while not task.done():
            loop.run_forever()
            for given, answer in asked:
                try:
                    answer.set_result(run(given))
                except StopIteration as error:
                    # No future takes one.
                    answer.set_exception(RuntimeError("the handler raised %r" % error))
                except BaseException as error:
                    answer.set_exception(error)
            asked.clear()
        return task.result()
    finally:
        loop.close()


def _without_waiting(chain, arguments, run):
    async def go_on(given):
        return await _settled(run(given))

    awaitable = chain(arguments, go_on)
    try:
        awaitable.send(None)
    except StopIteration as done:
        return done.value
    awaitable.close()
    raise RuntimeError("middleware cannot wait around a synchronous handler where `workers.threads` is 1")
