"""A stand-in for the owlclaw package, used where the real one is not installed.

It registers what an application registers, so that its handlers can be called, and runs no agent: no
language model, no scheduler, no database. Skills are read by the server, not here.
"""

import asyncio
import functools
import inspect
import logging
import sys

__all__ = ["OwlClaw"]
__version__ = "0.1.0"

logger = logging.getLogger(__name__)

_HANDLER_TIMEOUT_SECONDS = 30.0


class SkillsLoader:
    """Knows where the skills are, and nothing about them."""

    def __init__(self, base_path):
        self.base_path = base_path

    def scan(self):
        """No skills: the server reads them."""
        return []

    def list_skills(self):
        """No skills: the server reads them."""
        return []

    def get_skill(self, _name):
        """No skill: the server reads them."""
        return None


class CapabilityRegistry:
    """Handlers and state providers by name."""

    def __init__(self, skills_loader):
        self.skills_loader = skills_loader
        self.handlers = {}
        self.states = {}

    def register_handler(self, skill_name, handler):
        """Register the handler of a skill. Raises ValueError if it has one."""
        _register(self.handlers, "handler", skill_name, handler)

    def register_state(self, state_name, provider):
        """Register a state provider. Raises ValueError if the state has one."""
        _register(self.states, "state provider", state_name, provider)

    async def invoke_handler(self, skill_name, **kwargs):
        """Call a handler with those of the arguments that it takes."""
        handler = self.handlers.get(_name(skill_name, "skill_name"))
        if handler is None:
            raise ValueError("no handler is registered for skill %r" % skill_name)
        try:
            result = handler(**_arguments_for(handler, kwargs))
            if inspect.isawaitable(result):
                result = await asyncio.wait_for(result, _HANDLER_TIMEOUT_SECONDS)
            return result
        except Exception as error:
            raise RuntimeError("handler %r failed: %s: %s" % (skill_name, type(error).__name__, error)) from error

    async def get_state(self, state_name):
        """Ask a state provider. Raises TypeError if it does not answer with a dict."""
        provider = self.states.get(_name(state_name, "state_name"))
        if provider is None:
            raise ValueError("no provider is registered for state %r" % state_name)
        state = provider()
        if inspect.isawaitable(state):
            state = await state
        if not isinstance(state, dict):
            raise TypeError("the provider of state %r returned a %s" % (state_name, type(state).__name__))
        return state

    def list_capabilities(self):
        """What is registered, one dictionary each."""
        return [self.get_capability_metadata(name) for name in self.handlers]

    def get_capability_metadata(self, name):
        """What is known about one capability, or None."""
        handler = self.handlers.get(name)
        if handler is None:
            return None
        lines = (inspect.getdoc(handler) or "").splitlines()
        return {
            "name": name,
            "description": lines[0] if lines else "",
            "task_type": None,
            "constraints": {},
            "focus": [],
            "risk_level": "low",
            "requires_confirmation": False,
            "handler": getattr(handler, "__name__", type(handler).__name__),
        }

    def filter_by_task_type(self, task_type):
        """Names of the capabilities of a task type, which skills would tell."""
        return [entry["name"] for entry in self.list_capabilities() if entry["task_type"] == task_type]


class OwlClaw:
    """An application: a name, handlers and states."""

    def __init__(self, name):
        self.name = _name(name, "name")
        self.skills_loader = None
        self.registry = None
        self.knowledge_injector = None
        self._handlers = {}
        self._states = {}
        self._skills_path = None
        self._config = {}
        self._triggers = []

    @classmethod
    def lite(cls, name, *, skills_path=None, mock_responses=None, heartbeat_interval_minutes=5, governance=None):
        """An application without outside dependencies, which here every application is."""
        app = cls(name)
        app.configure(
            mock_responses=mock_responses,
            heartbeat_interval_minutes=heartbeat_interval_minutes,
            governance=governance,
        )
        if skills_path is not None:
            app.mount_skills(skills_path)
        return app

    def mount_skills(self, path):
        """Note where the skills are. Must come before handlers are registered, and once."""
        if self.registry is not None:
            raise RuntimeError("mount_skills() was already called")
        self._skills_path = _name(path, "path")
        self.skills_loader = SkillsLoader(self._skills_path)
        self.registry = CapabilityRegistry(self.skills_loader)

    def handler(
        self,
        skill_name,
        *,
        runnable=None,
        description=None,
        input_schema=None,
        output_schema=None,
        input_transformer=None,
        output_transformer=None,
        fallback=None,
        retry_policy=None,
        timeout_seconds=None,
        enable_tracing=True
    ):
        """Register the decorated function as the handler of a skill; with `runnable`, that instead."""
        if runnable is not None:
            if input_schema is None:
                raise ValueError("input_schema is required when runnable is provided")
            self.register_langchain_runnable(
                name=skill_name,
                runnable=runnable,
                description=description or "LangChain runnable for %s" % skill_name,
                input_schema=input_schema,
                output_schema=output_schema,
                input_transformer=input_transformer,
                output_transformer=output_transformer,
                fallback=fallback,
                retry_policy=retry_policy,
                timeout_seconds=timeout_seconds,
                enable_tracing=enable_tracing,
            )
            return lambda function: function

        def decorate(function):
            self._registered(skill_name, function)
            return function

        return decorate

    def register_langchain_runnable(
        self,
        *,
        name,
        runnable,
        description,
        input_schema,
        output_schema=None,
        input_transformer=None,
        output_transformer=None,
        fallback=None,
        retry_policy=None,
        timeout_seconds=None,
        enable_tracing=True
    ):
        """Register an object with `ainvoke` or `invoke` as a handler. The server traces its calls, so nothing else does."""
        from .integrations.langchain import LangChainAdapter, RunnableConfig

        if self.registry is None:
            raise RuntimeError("mount_skills() must be called before LangChain runnables are registered")
        LangChainAdapter(self).register_runnable(
            runnable,
            RunnableConfig(
                name=name,
                description=description,
                input_schema=input_schema,
                output_schema=output_schema,
                input_transformer=input_transformer,
                output_transformer=output_transformer,
                fallback=fallback,
                retry_policy=retry_policy,
                timeout_seconds=timeout_seconds,
                enable_tracing=enable_tracing,
            ),
        )

    def _registered(self, skill_name, handler):
        if self.registry is None:
            raise RuntimeError("mount_skills() must be called before handlers are registered")
        self.registry.register_handler(skill_name, handler)
        self._handlers[skill_name] = handler

    def state(self, name):
        """Register the decorated function as the provider of a state."""

        def decorate(function):
            if self.registry is None:
                raise RuntimeError("mount_skills() must be called before states are registered")
            self.registry.register_state(name, function)
            self._states[name] = function
            return function

        return decorate

    def cron(self, expression, **options):
        """Note a schedule; nothing runs it here."""
        return self._triggered("cron", expression, options)

    def db_change(self, **options):
        """Note a database trigger; nothing runs it here."""
        return self._triggered("db_change", None, options)

    def api(self, **options):
        """Note an HTTP trigger; nothing serves it here."""
        return self._triggered("api", None, options)

    def trigger(self, registration):
        """Note a trigger; nothing runs it here."""
        self._triggers.append(("trigger", registration, {}))

    def _triggered(self, kind, subject, options):
        def decorate(function):
            self._triggers.append((kind, subject, options))

            @functools.wraps(function)
            async def wrapper(*args, **kwargs):
                result = function(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result

            return wrapper

        return decorate

    def configure(self, **options):
        """Keep the options."""
        self._config.update(options)

    def run(self, **_options):
        """There is no agent to run."""
        logger.warning("run() does nothing: the owlclaw package is not installed for %s", sys.executable)

    def run_once(self, **_options):
        """There is no agent to run."""
        logger.warning("run_once() does nothing: the owlclaw package is not installed")
        return {}

    async def start(self, **_options):
        """There is no agent to start."""
        logger.warning("start() does nothing: the owlclaw package is not installed")

    async def stop(self):
        """There is no agent to stop."""

    async def start_governance(self):
        """There is none: the server governs."""

    async def stop_governance(self):
        """There is none: the server governs."""

    async def record_execution(self, *_arguments, **_options):
        """Records nothing: the server has recorded the call."""

    def health_status(self):
        """What is registered; nothing runs."""
        return {"app": self.name, "runtime_initialized": False, "stand_in": True, "governance_enabled": False}

    def __getattr__(self, name):
        raise AttributeError(missing("OwlClaw.%s" % name))


def missing(what):
    """What to say of something that only the package has."""
    return "%s is not in the stand-in for the package owlclaw, which registers handlers and runs no agent: install owlclaw for %s" % (
        what,
        sys.executable,
    )


def _name(value, what):
    if not isinstance(value, str) or not value.strip():
        raise ValueError("%s must be a non-empty string" % what)
    return value.strip()


def _register(known, what, name, function):
    if not callable(function):
        raise TypeError("the %s of %r must be callable" % (what, name))
    name = _name(name, "the name of a %s" % what)
    if name in known:
        raise ValueError("a %s for %r is already registered" % (what, name))
    known[name] = function


def _arguments_for(handler, given):
    parameters = inspect.signature(handler).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(given)
    names = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    if "session" in names and "session" not in given:
        return {"session": dict(given)}
    taken = {name: value for name, value in given.items() if name in names}
    if not taken and given and len(names) == 1:
        return {names[0]: dict(given)}
    return taken
