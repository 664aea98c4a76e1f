"""Finding and loading the application.

    path.py[:attr]   module[:attr]   either with :factory()

Without an attribute the application object is looked for: among the module's globals, from its
factories, among the objects made while it was imported, and at last by calling its `main()` with
`run` patched to stop instead of serving.
"""

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys

import owlclaw_worker

from . import hints, llm_costs, offers, threads

FACTORIES = ("create_app", "_create_app", "build_app", "make_app")

# Methods that would start serving: reaching one of them means that the application is complete.
_STARTERS = ("run", "run_once", "start", "run_async", "run_stdio_async", "run_http_async", "run_stdio")


class LoadError(Exception):
    """The application could not be found; `str()` is for whoever wrote the configuration."""


class _Started(BaseException):
    """The application called `run()`. Not an Exception, so that its own handlers let it pass."""


class Application:
    """A loaded application."""

    def __init__(self, app, owlclaw, warnings):
        self.app = app
        self.owlclaw = owlclaw  # "real" or "bundled"
        self.warnings = warnings
        self.governance = []
        self.one_thread = []
        self.name = str(getattr(app, "name", "") or "")

    def handlers(self):
        """The registered handlers by tool name, but for OwlClaw's own binding tools.

        Those would carry a skill's binding out past the server's rules for requests to services. The
        server offers bindings itself.
        """
        return {name: one for name, one in _registered(self.app, "handlers").items() if not _is_binding_tool(one)}

    def binding_tools(self):
        """The names of OwlClaw's own binding tools among the registered handlers."""
        return [name for name, one in _registered(self.app, "handlers").items() if _is_binding_tool(one)]

    def states(self):
        """The registered state providers by name."""
        return _registered(self.app, "states")

    def skills(self):
        """The absolute path of the directory of skills that it has mounted, or None."""
        path = getattr(getattr(self.app, "skills_loader", None), "base_path", None)
        if path is None:
            path = getattr(self.app, "_skills_path", None)
        try:
            return None if path is None else os.path.abspath(os.fspath(path))
        except TypeError:
            return None


def load(spec, root, await_it, search=()):
    """Load the application that `spec` names. `await_it` runs a coroutine to its end. Its modules are looked for in the
    directories of `search` as well.
    """
    target, attribute, call = _split(spec, root)
    if not _is_path(target, root):
        _put_first(root)  # As `python -m MODULE` has it.
    _put_behind_python(root, *search)
    owlclaw = _provide_owlclaw()
    llm_costs.watch()
    threads.watch_sleep()
    module_class = importlib.import_module("owlclaw")
    app_class = getattr(module_class, "OwlClaw", None)
    if not isinstance(app_class, type):
        raise LoadError("the package owlclaw at %s has no class OwlClaw" % getattr(module_class, "__file__", "?"))
    _add_decorators(app_class)
    app_class = (app_class, owlclaw_worker.FastMCP)
    before = set(sys.modules)
    arguments = sys.argv
    # A main() that parses its command line shall see an empty one.
    sys.argv = [target if _is_path(target, root) else spec]
    try:
        with _Watch(app_class) as watch:
            module, stopped = _run_module(target, root)
            if attribute is not None:
                app = _named(module, spec, attribute, call, await_it)
                warnings = []
            else:
                app, warnings = _search(module, app_class, watch, stopped, await_it, spec, before)
    finally:
        sys.argv = arguments
    if not _is_app(app, app_class):
        where = getattr(type(app), "__module__", "").partition(".")[0]
        hint = "; import FastMCP from owlclaw_worker instead" if where in ("fastmcp", "mcp") else ""
        raise LoadError("%s is a %s, not an OwlClaw application%s" % (spec, type(app).__name__, hint))
    application = Application(app, owlclaw, warnings)
    application.governance = _ignored_governance(app)
    left_out = application.binding_tools()
    if left_out:
        application.warnings.append(
            "OwlClaw's own binding tools are not run (%s): bindings are carried out by the server alone, where "
            "`services.bindings` allows it" % ", ".join(left_out)
        )
    elif not _has_anything(app):
        application.warnings.append("the application has registered no handlers")
    return application


def provide():
    """Make the package `owlclaw` as an application finds it that the server runs."""
    if _provide_owlclaw() == "bundled" and _Missing not in sys.meta_path:
        sys.meta_path.append(_Missing)
    app_class = getattr(importlib.import_module("owlclaw"), "OwlClaw", None)
    if isinstance(app_class, type):
        _add_decorators(app_class)


class _Missing:
    """Says of modules that the stand-in has not, after all others have been asked, what is missing. The server says it itself."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname.startswith("owlclaw."):
            raise ModuleNotFoundError(importlib.import_module("owlclaw").missing(fullname), name=fullname)


def _registered(app, kind):
    registry = getattr(app, "registry", None)
    found = getattr(registry, kind, None)
    if not isinstance(found, dict):
        found = getattr(app, "_" + kind, None)
    return dict(found) if isinstance(found, dict) else {}


def _has_anything(app):
    offered = offers.of(app)
    return bool(_registered(app, "handlers") or offered.resources or offered.prompts)


def _add_decorators(app_class):
    """Give the class of applications the decorators for what OwlClaw itself has not."""

    def tool(app, name_or_function=None, **about):
        return offers.tool(app, lambda name, function: app.handler(name)(function), name_or_function, **about)

    for function in (tool, offers.resource, offers.prompt, offers.completion, offers.lifespan, offers.add_middleware):
        if not hasattr(app_class, function.__name__):
            setattr(app_class, function.__name__, function)
    if not hasattr(app_class, _KEPT):
        _keep_descriptions(app_class)


# Marks a class whose registration keeps what is said about handlers.
_KEPT = "_owlclaw_worker_keeps_descriptions"


class RunnableFailed(Exception):
    """A runnable of LangChain failed, which OwlClaw's adapter answers as if it were a result."""


def _keep_descriptions(app_class):
    """Keep what `handler()` and `register_langchain_runnable()` are told of schemas, which OwlClaw itself drops."""
    setattr(app_class, _KEPT, True)
    register = app_class.handler
    register_runnable = getattr(app_class, "register_langchain_runnable", None)

    @functools.wraps(register)
    def handler(app, skill_name, **about):
        decorate = register(app, skill_name, **about)
        said = {name: about.get(name) for name in ("description", "input_schema", "output_schema")}
        said = {name: one for name, one in said.items() if one is not None}
        if about.get("runnable") is not None or not said:
            return decorate

        def decorate_described(function):
            for name, one in said.items():
                try:
                    setattr(function, name, one)
                except (AttributeError, TypeError):  # A bound method takes none.
                    break
            return decorate(function)

        return decorate_described

    app_class.handler = handler
    if register_runnable is None:
        return

    @functools.wraps(register_runnable)
    def register_langchain_runnable(app, **about):
        register_runnable(app, **about)
        handlers = app.registry.handlers
        name = next((one for one in (about.get("name"), str(about.get("name")).strip()) if one in handlers), None)
        # The package's own: that of the stand-in has all of it.
        if name is None or not inspect.isfunction(handlers[name]):
            return
        execute = handlers[name]

        async def runnable(**arguments):
            # The adapter takes a member `input` for all of the input.
            result = await execute({"input": arguments})
            error = result.get("error") if isinstance(result, dict) and len(result) == 1 else None
            if isinstance(error, dict) and {"type", "message", "status_code"} <= set(error):
                raise RunnableFailed("%s: %s" % (error["type"], error["message"]))
            return result

        runnable.description = about.get("description")
        runnable.input_schema = about.get("input_schema")
        runnable.output_schema = about.get("output_schema")
        handlers[name] = runnable

    app_class.register_langchain_runnable = register_langchain_runnable


# Values that `OwlClaw.lite()` sets by default.
_LITE_GOVERNANCE = {
    "visibility.budget.high_cost_threshold": "1.0",
    "visibility.circuit_breaker.failure_threshold": 5,
    "visibility.circuit_breaker.recovery_timeout": 300,
}

# Keys for the place of OwlClaw's records, which govern nothing.
_STORES = ("use_inmemory_ledger", "session_factory", "ledger", "router")


def _ignored_governance(app):
    """The keys of OwlClaw's own governance that an application sets, and that are not ours to apply."""
    config = getattr(app, "_governance_config", None)
    if not isinstance(config, dict):
        config = getattr(app, "_config", None)
        config = config.get("governance") if isinstance(config, dict) else None
    found = {}

    def visit(value, path):
        if isinstance(value, dict) and value:
            for name, one in value.items():
                visit(one, "%s.%s" % (path, name) if path else str(name))
        elif value not in (None, {}, [], False):
            found[path] = value

    if isinstance(config, dict):
        visit({name: value for name, value in config.items() if name not in _STORES}, "")
    return [path for path, value in found.items() if _LITE_GOVERNANCE.get(path) != value]


def _is_binding_tool(handler):
    """Tell handlers that are a `BindingTool` of the package owlclaw, or reach one."""
    for layer in hints.layers(handler):
        # A bound method, such as its `__call__`.
        for one in (layer, getattr(layer, "__self__", None)):
            for base in type(one).__mro__:
                if base.__name__ == "BindingTool" and base.__module__.partition(".")[0] == "owlclaw":
                    return True
    return False


def _is_app(candidate, app_class):
    if isinstance(candidate, app_class):
        return True
    # An object that was named and quacks like one, such as a wrapper around the real thing.
    return not isinstance(candidate, type) and bool(_registered(candidate, "handlers"))


# The specification

_ATTRIBUTE = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*(\(\))?$")


def _split(spec, root):
    target, colon, attribute = spec.strip().rpartition(":")
    # A colon may also belong to the path.
    if not colon or not _ATTRIBUTE.match(attribute) or os.path.isfile(os.path.join(root, spec)):
        target, attribute = spec.strip(), ""
    if not target:
        raise LoadError("no application is named; expected path.py[:attr] or module[:attr]")
    call = attribute.endswith("()")
    return target, attribute[:-2] if call else attribute or None, call


def _is_path(target, root):
    return target.endswith(".py") or os.sep in target or os.path.isfile(os.path.join(root, target))


def _put_first(*directories):
    for directory in reversed(directories):
        sys.path[:] = [entry for entry in sys.path if entry != directory]
        sys.path.insert(0, directory)


def _put_behind_python(*directories):
    """Put directories that are not there yet behind Python's own modules, which none of theirs takes the place of, and before
    installed packages.
    """
    library = os.path.dirname(os.path.abspath(os.__file__))
    of_python = [at for at, entry in enumerate(sys.path) if _is_of_python(entry, library)]
    place = of_python[-1] + 1 if of_python else len(sys.path)
    sys.path[place:place] = [one for one in dict.fromkeys(directories) if one not in sys.path]


def _is_of_python(entry, library):
    is_inside = entry == library or entry.startswith(library + os.sep)
    return is_inside and not any(part in ("site-packages", "dist-packages") for part in entry.split(os.sep))


def _provide_owlclaw():
    """Make `import owlclaw` work, with the real package wherever there is one."""
    spec = importlib.util.find_spec("owlclaw")
    # A mere directory of that name, without code, is found as a namespace.
    if spec is not None and spec.origin not in (None, "namespace"):
        return "real"
    stand_in = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "owlclaw_stand_in")
    sys.path.append(stand_in)
    importlib.invalidate_caches()
    return "bundled"


# Running the module


def _run_module(target, root):
    """Import it. Returns the module, and whether it reached `run()` while being imported."""
    if _is_path(target, root):
        name, spec = _spec_of_path(os.path.join(root, target), root)
    else:
        name, spec = target, _spec_of_module(target)
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded, False
    module = importlib.util.module_from_spec(spec)
    # Known before it runs: modules that it imports may import it in turn.
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    try:
        spec.loader.exec_module(module)
    except _Started:
        return module, True
    finally:
        if parent in sys.modules:
            setattr(sys.modules[parent], child, module)
    return module, False


def _spec_of_module(target):
    try:
        spec = importlib.util.find_spec(target)
    except ModuleNotFoundError as error:
        if error.name and (target == error.name or target.startswith(error.name + ".")):
            raise LoadError("there is no module %s (searched: %s)" % (target, ", ".join(sys.path))) from error
        raise
    if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
        raise LoadError("there is no module %s (searched: %s)" % (target, ", ".join(sys.path)))
    return spec


def _spec_of_path(path, root):
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise LoadError("there is no file %s" % path)
    directory = os.path.dirname(path)
    parts = [os.path.splitext(os.path.basename(path))[0]]
    top = directory
    # Inside a package the file is imported as a member of it, so that its relative imports work.
    while os.path.isfile(os.path.join(top, "__init__.py")) and os.path.basename(top).isidentifier():
        parts.insert(0, os.path.basename(top))
        top = os.path.dirname(top)
    # As `python FILE` has it.
    _put_first(directory)
    _put_behind_python(top)
    if len(parts) > 1 and not _is_found_in(top, parts[0]):
        _put_first(top)  # Python has something of its own by the name of the package.
    if len(parts) > 1 and parts[-1].isidentifier():
        if parts[-1] == "__init__":
            parts.pop()
        name = ".".join(parts)
        importlib.import_module(name.rpartition(".")[0]) if "." in name else None
    else:
        name = parts[-1]
        known = sys.modules.get(name)
        if not name.isidentifier() or known is not None:
            name = "owlclaw_application_" + re.sub(r"\W", "_", name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError("%s is not a Python file" % path)
    return name, spec


def _is_found_in(directory, name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin == os.path.join(directory, name, "__init__.py")


# Looking for the application object


class _Watch:
    """Records the applications that are made, and stops those that would start."""

    def __init__(self, app_classes):
        self.made = []
        self._classes = app_classes
        self._replaced = {}

    def __enter__(self):
        for app_class in self._classes:
            self._record(app_class)
            for name in _STARTERS:
                method = getattr(app_class, name, None)
                if method is not None:
                    self._replace(app_class, name, _stopper(name))
        return self

    def _record(self, app_class):
        original = app_class.__init__

        def recording(app, *args, **kwargs):
            if not any(app is other for other in self.made):
                self.made.append(app)
            original(app, *args, **kwargs)

        recording.__wrapped__ = original
        self._replace(app_class, "__init__", recording)

    def _replace(self, app_class, name, value):
        self._replaced[app_class, name] = app_class.__dict__.get(name)
        setattr(app_class, name, value)

    def __exit__(self, *_):
        for (app_class, name), original in self._replaced.items():
            if original is None:
                delattr(app_class, name)
            else:
                setattr(app_class, name, original)


def _stopper(name):
    def stop(*_args, **_kwargs):
        raise _Started(name)

    return stop


def _named(module, spec, attribute, call, await_it):
    found = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise LoadError("%s: %r has no attribute %r" % (spec, getattr(found, "__name__", found), name))
        found = getattr(found, name)
    is_factory = inspect.isroutine(found) and not hasattr(found, "registry")
    return _called(found, await_it) if call or is_factory else found


def _called(factory, await_it):
    made = factory()
    return await_it(made) if inspect.isawaitable(made) else made


def _names_owlclaw(module, app_class, before):
    """Tell modules that have the class OwlClaw or its package, or import one of the application's that has.

    The functions of one that has not are none of ours to call.
    """
    package = sys.modules.get("owlclaw")
    for name, other in list(sys.modules.items()):
        if other is not module and (name in before or name.partition(".")[0] == "owlclaw"):
            continue
        path = getattr(other, "__file__", None) or ""
        if other is not module and any(part in path.split(os.sep) for part in ("site-packages", "dist-packages")):
            continue
        for value in list(getattr(other, "__dict__", {}).values()):
            if value is package or any(value is one for one in app_class) or isinstance(value, app_class):
                return True
            if isinstance(value, type) and issubclass(value, app_class):
                return True
    return any(_imports_owlclaw(value) for value in vars(module).values() if inspect.isfunction(value))


def _imports_owlclaw(function):
    """Tell functions that import the package when they run."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        if any(name.partition(".")[0] == "owlclaw" for name in code.co_names):
            return True
        codes.extend(constant for constant in code.co_consts if inspect.iscode(constant))
    return False


def _search(module, app_class, watch, stopped, await_it, spec, before):
    candidates = _in_globals(module, app_class)
    complete = [app for app in candidates if _has_anything(app)]
    warnings = []
    if complete:
        return _the_one(complete, module, spec, warnings), warnings
    if not candidates and not watch.made and not _names_owlclaw(module, app_class, before):
        foreign = [name for name, value in vars(module).items() if _is_foreign(value)]
        if foreign:
            raise LoadError(
                "%s in %s is an application of another framework; write `from owlclaw_worker import FastMCP` instead of "
                "importing FastMCP from it" % (", ".join(foreign), spec)
            )
        raise LoadError(
            "no OwlClaw application was found in %s: nothing in it refers to the package owlclaw, so that neither "
            "main() nor another function of it was called; name it as %s:attribute" % (spec, spec)
        )
    if not candidates:
        for name in FACTORIES:
            factory = getattr(module, name, None)
            if not callable(factory) or not _needs_nothing(factory):
                continue
            made = _called(factory, await_it)
            if isinstance(made, app_class):
                return made, warnings
            warnings.append("%s() returned a %s, not an application" % (name, type(made).__name__))
    recorded = [app for app in watch.made if _has_anything(app)]
    if recorded:
        return _the_one(recorded, module, spec, warnings), warnings
    main = getattr(module, "main", None)
    if not stopped and callable(main) and _needs_nothing(main):
        try:
            _called(main, await_it)
        except _Started:
            pass
        except SystemExit as exit_:
            if exit_.code not in (None, 0):
                warnings.append("main() exited with %r" % (exit_.code,))
    made = [app for app in watch.made if _has_anything(app)] or candidates or watch.made
    if made:
        return _the_one(made, module, spec, warnings), warnings
    raise LoadError(
        "no OwlClaw application was found in %s: it has no global of that class, no %s, and main() made none; "
        "name it as %s:attribute" % (spec, ", ".join(name + "()" for name in FACTORIES), spec)
    )


def _is_foreign(value):
    """Tell applications of FastMCP, or of the SDK's class of that name."""
    kind = type(value)
    return kind.__name__ in ("FastMCP", "MCPServer") and kind.__module__.partition(".")[0] in ("fastmcp", "mcp")


def _in_globals(module, app_class):
    found = []
    for value in list(vars(module).values()):
        if isinstance(value, app_class) and not any(value is other for other in found):
            found.append(value)
    return found


def _the_one(apps, module, spec, warnings):
    if len(apps) == 1:
        return apps[0]
    names = [name for name, value in vars(module).items() if any(value is app for app in apps)]
    for name in ("app", "application", "mcp", "server"):
        preferred = vars(module).get(name)
        if any(preferred is app for app in apps):
            others = [other for other in names if not _is_part(vars(module)[other], preferred)]
            if others:
                warnings.append(
                    "%s is served, and what is registered with %s alone is not; mount it, or name it as %s:%s"
                    % (name, ", ".join(others), spec, others[0])
                )
            return preferred
    raise LoadError(
        "%s has %d applications%s; name one as %s:attribute"
        % (spec, len(apps), " (%s)" % ", ".join(names) if names else "", spec)
    )


def _is_part(app, whole):
    """Whether all handlers of `app` are those of `whole`, too: the same application, or one that is mounted there."""
    taken = [id(handler) for handler in _registered(whole, "handlers").values()]
    return all(id(handler) in taken for handler in _registered(app, "handlers").values())


def _needs_nothing(function):
    try:
        hints.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True
