"""Runnables of LangChain as handlers: objects with `ainvoke` or `invoke`, or callables.

LangChain itself need not be installed. The server checks arguments by the input schema and results by the output
schema; a failure is an error of the call.
"""

import asyncio
import contextvars
import dataclasses
import inspect
import logging
import typing

from owlclaw_worker import constraints
from owlclaw_worker.call import Handler

__all__ = ["LangChainAdapter", "LangChainConfig", "RetryPolicy", "RunnableConfig"]

logger = logging.getLogger(__name__)


def __getattr__(name):
    from .. import missing

    raise AttributeError(missing("owlclaw.integrations.langchain.%s" % name))


@dataclasses.dataclass
class RetryPolicy:
    """How often a runnable is tried, and after how long again."""

    max_attempts: int = 3
    initial_delay_ms: int = 100
    max_delay_ms: int = 5000
    backoff_multiplier: float = 2.0
    retryable_errors: typing.List[str] = dataclasses.field(default_factory=lambda: ["TimeoutError", "RateLimitError"])

    def __post_init__(self):
        if self.max_attempts < 1 or self.backoff_multiplier < 1:
            raise ValueError("max_attempts and backoff_multiplier must be at least 1")
        if self.initial_delay_ms < 0 or self.max_delay_ms < 0:
            raise ValueError("delays must not be negative")

    def delay(self, attempt):
        """Seconds to wait after this attempt."""
        later = self.initial_delay_ms * self.backoff_multiplier ** (attempt - 1 if attempt > 1 else 0)
        return min(self.max_delay_ms, later) / 1000


@dataclasses.dataclass
class RunnableConfig:
    """What is said about a runnable."""

    name: str
    description: str
    input_schema: typing.Dict[str, typing.Any]
    output_schema: typing.Optional[typing.Dict[str, typing.Any]] = None
    input_transformer: typing.Any = None
    output_transformer: typing.Any = None
    fallback: typing.Optional[str] = None
    retry_policy: typing.Optional[typing.Dict[str, typing.Any]] = None
    timeout_seconds: typing.Optional[float] = None
    enable_tracing: bool = True


class LangChainConfig:
    """Settings of the package's own adapter, which are kept and not looked at."""

    def __init__(self, **settings):
        self.__dict__.update(settings)


class LangChainAdapter:
    """Registers runnables with an application."""

    def __init__(self, app, config=None):
        self._app = app
        self._config = config

    def register_runnable(self, runnable, config):
        """Register a runnable as the handler of a skill. Raises TypeError or ValueError if it is none."""
        if not any(callable(getattr(runnable, name, None)) for name in ("ainvoke", "invoke")) and not callable(runnable):
            raise TypeError("a runnable has ainvoke() or invoke(), or can be called: %s" % type(runnable).__name__)
        if not config.name.strip() or not config.description.strip():
            raise ValueError("a runnable needs a name and a description")
        if not isinstance(config.input_schema, dict) or not config.input_schema:
            raise ValueError("input_schema of the runnable %r must be a dict that is not empty" % config.name)
        self._app._registered(config.name, _Handler(self._app, runnable, config))


class _Handler:
    """The handler of a runnable."""

    def __init__(self, app, runnable, config):
        self._app = app
        self._runnable = runnable
        self._config = config
        self.description = config.description
        self.input_schema = config.input_schema
        self.output_schema = config.output_schema
        policy = config.retry_policy
        # As in the package: without a policy there is one attempt, and with one what it leaves out is none.
        self._policy = RetryPolicy(**{"max_attempts": 1, "initial_delay_ms": 0, "max_delay_ms": 0, "retryable_errors": [], **(policy or {})})

    async def __call__(self, **arguments):
        try:
            return await self._tried(arguments)
        except Exception as error:
            if not self._config.fallback:
                raise
            logger.warning("%r failed (%s: %s); its fallback %r is called", self._config.name, type(error).__name__, error, self._config.fallback)
            result = await self._fall_back(arguments, error)
            result = result if isinstance(result, dict) else {"result": result}
            return {**result, "_fallback_used": True, "_fallback_name": self._config.fallback}

    async def _fall_back(self, arguments, error):
        """Call the fallback: with all as its `session` if it has one, as in the package; else with its own arguments,
        judged and converted as those of a call.
        """
        session = {**arguments, "_original_error": str(error) or type(error).__name__}
        name = self._config.fallback
        function = self._app.registry.handlers.get(name)
        handler = None if function is None else Handler(name, function)
        if handler is None or handler.signature.open or handler.signature.session is not None:
            return await self._app.registry.invoke_handler(name, session=session)
        try:
            positional, keywords = handler.judged(arguments)
        except constraints.InvalidArgument as refused:
            raise TypeError("the fallback %r does not take what %r was given: %s" % (name, self._config.name, refused)) from error
        result = handler.run(*positional, **keywords)
        return await result if inspect.isawaitable(result) else result

    async def _tried(self, arguments):
        given = self._config.input_transformer(arguments) if self._config.input_transformer else arguments
        attempt = 1
        while True:
            try:
                result = await asyncio.wait_for(self._invoke(given), self._config.timeout_seconds)
                break
            except Exception as error:
                if attempt >= self._policy.max_attempts or type(error).__name__ not in self._policy.retryable_errors:
                    raise
                await asyncio.sleep(self._policy.delay(attempt))
                attempt += 1
        result = self._config.output_transformer(result) if self._config.output_transformer else result
        return result if isinstance(result, dict) else {"result": result}

    async def _invoke(self, given):
        later = getattr(self._runnable, "ainvoke", None)
        if callable(later):
            return await later(given)
        method = getattr(self._runnable, "invoke", None)
        method = method if callable(method) else self._runnable
        # What blocks must not hold up the loop.
        context = contextvars.copy_context()
        result = await asyncio.get_running_loop().run_in_executor(None, context.run, method, given)
        return await result if inspect.isawaitable(result) else result
