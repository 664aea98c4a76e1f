"""`FastMCP`: an application that is written as one for the framework of that name.

    from owlclaw_worker import FastMCP

    mcp = FastMCP("shop")

    @mcp.tool
    def add(a: int, b: int) -> int:
        return a + b

    if __name__ == "__main__":
        mcp.run()

The server runs it as any application (`app: shop.py`), with its own rules, ledger and transports. `mcp.run()` under
`python shop.py` starts that server.
"""

import os
import shutil
import sys
import typing

import owlclaw_worker

from . import offers

__all__ = ["FastMCP"]

_F = typing.TypeVar("_F", bound=typing.Callable[..., typing.Any])

# Names of transports, and the server's.
_TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "http"}


# Settings that protect something: passed over, they would leave it unprotected.
_REFUSED = {
    "auth": "who may connect is the configuration's (`identity`); take the argument away",
    "mask_error_details": "what a handler raises is told to its caller; raise exceptions with words that may be told",
    "tool_transformations": "write the tool as it is to be offered",
    "transforms": "write the tools as they are to be offered",
}

# What may be said where something is registered.
_KNOWN_OF_ONE = {
    "name", "title", "description", "tags", "icons", "annotations", "meta", "output_schema", "enabled", "mime_type", "version",
    "exclude_args",
}

_KINDS = {"tool", "resource", "template", "prompt"}


class FastMCP:
    """Tools, resources and prompts under a name."""

    def __init__(
        self,
        name: typing.Optional[str] = None,
        instructions: typing.Optional[str] = None,
        *,
        lifespan: typing.Any = None,
        tools: typing.Sequence[typing.Any] = (),
        middleware: typing.Sequence[typing.Any] = (),
        include_tags: typing.Optional[typing.Collection[str]] = None,
        exclude_tags: typing.Optional[typing.Collection[str]] = None,
        **settings: typing.Any
    ) -> None:
        refused = {key: cure for key, cure in _REFUSED.items() if settings.get(key)}
        if refused:
            raise NotImplementedError(
                "; ".join("FastMCP(%s=...) is not in force here: %s" % one for one in refused.items())
            )
        self.version: typing.Optional[str] = settings.get("version")
        # What `enable` and `disable` have said, in this order, and what is off by it.
        self._switches: typing.List[typing.Any] = []
        self._off: typing.Dict[typing.Any, typing.Any] = {}
        self._include = None if include_tags is None else set(include_tags)
        self._exclude = set(exclude_tags or ())
        self.name = name or "FastMCP"
        self.instructions = instructions
        self.settings = settings
        self._handlers: typing.Dict[str, typing.Any] = {}
        self._states: typing.Dict[str, typing.Any] = {}
        self._notes: typing.List[str] = []
        if settings:
            self._note("settings of FastMCP(...) that the server has in its own configuration: %s" % ", ".join(sorted(settings)))
        if instructions:
            self._note("`instructions` of FastMCP(...) is not told to clients")
        if lifespan is not None:
            offers.lifespan(self, lifespan)
        for one in tools:
            self.add_tool(one)
        for one in middleware:
            self.add_middleware(one)

    @typing.overload
    def tool(self, name_or_function: _F, **about: typing.Any) -> _F: ...

    @typing.overload
    def tool(self, name_or_function: typing.Optional[str] = None, **about: typing.Any) -> typing.Callable[[_F], _F]: ...

    def tool(self, name_or_function: typing.Any = None, **about: typing.Any) -> typing.Any:
        """Register a tool: `@mcp.tool`, `@mcp.tool()` or `@mcp.tool("name", title=..., annotations=...)`."""
        return offers.tool(self, self._register, name_or_function, **self._wanted(about))

    def _wanted(self, about):
        """What is said about something, which is off where its tags are not those that are wanted."""
        offers.refuse(about)
        # Synchronous functions have threads in any case.
        passed_over = [
            key for key, one in about.items() if key not in _KNOWN_OF_ONE and one is not None and (key, one) != ("run_in_thread", True)
        ]
        if passed_over:
            self._note("what is said about tools, resources and prompts and passed over: %s" % ", ".join(sorted(passed_over)))
        about = {key: one for key, one in about.items() if key in _KNOWN_OF_ONE}
        if about.get("version") is not None:
            about["meta"] = {**(about.get("meta") or {}), "io.owlclaw/version": str(about.pop("version"))}
        tags = set(about.get("tags") or ())
        if tags & self._exclude or (self._include is not None and not tags & self._include):
            return {**about, "enabled": False}
        return about

    def _register(self, name, function):
        if name in self._handlers or ("tool", name) in self._off:
            raise ValueError("the tool %r is already registered" % name)
        self._handlers[name] = function
        self._switch()

    def add_tool(self, function: typing.Any, **about: typing.Any) -> typing.Any:
        """Register a function, or a `Tool`."""
        if isinstance(function, offers.Tool):
            about = {**function.about, **about}
        return offers.tool(self, self._register, function, **self._wanted(about))

    def remove_tool(self, name: str) -> None:
        """Take a tool away again."""
        if self._off.pop(("tool", name), None) is None:
            del self._handlers[name]

    def resource(self, uri: str, **about: typing.Any) -> typing.Callable[[_F], _F]:
        """Register a resource, or a family of them: `@mcp.resource("users://{user}")`."""
        return self._switched(offers.resource(self, uri, **self._wanted(about)))

    @typing.overload
    def prompt(self, name_or_function: _F, **about: typing.Any) -> _F: ...

    @typing.overload
    def prompt(self, name_or_function: typing.Optional[str] = None, **about: typing.Any) -> typing.Callable[[_F], _F]: ...

    def prompt(self, name_or_function: typing.Any = None, **about: typing.Any) -> typing.Any:
        """Register a prompt: `@mcp.prompt`, `@mcp.prompt()` or `@mcp.prompt("name", title=...)`."""
        wanted = self._wanted(about)
        if callable(name_or_function):
            return self._switched(offers.prompt(self, **wanted))(name_or_function)
        return self._switched(offers.prompt(self, name_or_function, **wanted))

    def _switched(self, decorate):
        """A decorator, after which what it has registered is on or off."""

        def register(function):
            function = decorate(function)
            self._switch()
            return function

        return register

    def disable(
        self,
        *,
        names: typing.Optional[typing.Collection[str]] = None,
        keys: typing.Optional[typing.Collection[str]] = None,
        tags: typing.Optional[typing.Collection[str]] = None,
        components: typing.Optional[typing.Collection[str]] = None
    ) -> "FastMCP":
        """Offer nothing that all of these say, now and when it is registered later, until `enable` says otherwise.

        A key is the kind and the name: `tool:add`, `resource:data://config`.
        """
        return self._say(False, names, keys, tags, components)

    def enable(
        self,
        *,
        names: typing.Optional[typing.Collection[str]] = None,
        keys: typing.Optional[typing.Collection[str]] = None,
        tags: typing.Optional[typing.Collection[str]] = None,
        components: typing.Optional[typing.Collection[str]] = None,
        only: bool = False
    ) -> "FastMCP":
        """Offer again what all of these say; with `only`, nothing else."""
        if only:
            self._say(False, None, None, None, None)
        return self._say(True, names, keys, tags, components)

    def _say(self, is_on, names, keys, tags, components):
        if owlclaw_worker._worker is not None:
            raise NotImplementedError("what is offered is said when the application is loaded: enable() and disable() are for then")
        unknown = set(components or ()) - _KINDS
        if unknown:
            raise ValueError("there are no components %s; there are %s" % (", ".join(sorted(unknown)), ", ".join(sorted(_KINDS))))
        wanted = [None if one is None else set(one) for one in (names, keys, tags, components)]
        self._switches.append((is_on, *wanted))
        self._switch()
        return self

    def _switch(self):
        """Take away what is off, and put back what is on again."""
        if not self._switches:
            return
        offered = offers.of(self)
        places = {"tool": self._handlers, "resource": offered.resources, "prompt": offered.prompts}
        for (kind, name), one in list(self._off.items()):
            places[kind][name] = one
        self._off.clear()
        for kind, found in places.items():
            for name, one in list(found.items()):
                if not self._is_on(kind, name, one):
                    self._off[kind, name] = found.pop(name)

    def _is_on(self, kind, name, one):
        about = offers.about_tool(one) if kind == "tool" else one.about
        tags = set(about.get("tags") or ())
        kind = "template" if getattr(one, "is_template", False) else kind
        is_on = True
        for says, names, keys, wanted_tags, kinds in self._switches:
            fits = (
                (names is None or name in names or (kind in ("resource", "template") and about.get("name") in names))
                and (keys is None or "%s:%s" % (kind, name) in keys or "%s:%s@" % (kind, name) in keys)
                and (wanted_tags is None or bool(tags & wanted_tags))
                and (kinds is None or kind in kinds)
            )
            is_on = says if fits else is_on
        return is_on

    @typing.overload
    def completion(self, of_what: _F) -> _F: ...

    @typing.overload
    def completion(self, of_what: typing.Optional[str] = None, argument: typing.Optional[str] = None) -> typing.Callable[[_F], _F]: ...

    def completion(self, of_what: typing.Any = None, argument: typing.Optional[str] = None) -> typing.Any:
        """Register what suggests values of an argument of a prompt or a template, or of all of them."""
        return offers.completion(self, of_what, argument)

    def lifespan(self, function: _F) -> _F:
        """Register what starts and ends with each worker."""
        offers.lifespan(self, function)
        return function

    def mount(
        self,
        server: "FastMCP",
        prefix: typing.Optional[str] = None,
        *,
        namespace: typing.Optional[str] = None,
        tool_names: typing.Optional[typing.Mapping[str, str]] = None,
        **options: typing.Any
    ) -> None:
        """Take over what another one has now: tools and prompts as `prefix_name`, resources as `scheme://prefix/rest`.

        A prefix is also called a namespace. `tool_names` has other names of single tools.
        """
        prefix = prefix if namespace is None else namespace
        if options:
            self._note("options of mount() that are passed over: %s" % ", ".join(sorted(options)))
        if not isinstance(server, FastMCP):
            raise TypeError("only another FastMCP of this package can be mounted, not a %s" % type(server).__name__)
        if offers.of(server).middleware:
            raise NotImplementedError("middleware of a server that is mounted is not run: add it to the one that mounts it")
        for name, function in server._handlers.items():
            other = (tool_names or {}).get(name)
            self._register(other or ("%s_%s" % (prefix, name) if prefix else name), function)
        theirs, ours = offers.of(server), offers.of(self)
        for uri, handler in theirs.resources.items():
            if prefix:
                scheme, _, rest = uri.partition("://")
                uri = "%s://%s/%s" % (scheme, prefix, rest)
            offers.resource(self, uri, **handler.about)(handler.function)
        for name, handler in theirs.prompts.items():
            name = "%s_%s" % (prefix, name) if prefix else name
            offers.prompt(self, **{**handler.about, "name": name})(handler.function)
        self._switch()
        if theirs.lifespan is not None and ours.lifespan is None:
            ours.lifespan = theirs.lifespan

    async def import_server(self, server: "FastMCP", prefix: typing.Optional[str] = None) -> None:
        """Take over what another one has now."""
        self.mount(server, prefix)

    def custom_route(self, path: str, *_: typing.Any, **__: typing.Any) -> typing.Any:
        """Note a route of its own, which is not served."""
        self._note("the route %s is not served: the server has its own" % path)
        return lambda function: function

    def add_middleware(self, middleware: typing.Any) -> None:
        """Run middleware around tools, resources and prompts. One that would see lists or the handshake is an error."""
        offers.add_middleware(self, middleware)

    def _note(self, text):
        self._notes.append(text)

    # Running

    def run(self, transport: typing.Optional[str] = None, **options: typing.Any) -> None:
        """Start the server with this application, in place of this process: `owlclaw-mcp start --app FILE`.

        Over standard input and output unless `transport` is `http`; then `host` and `port` are taken as well. The
        program is looked for in the variable OWLCLAW_MCP and in PATH. When the server itself loads the application,
        this only tells it that the application is complete.
        """
        wanted = _TRANSPORTS.get(transport or "stdio")
        if wanted is None:
            raise ValueError("there is no transport %r; there are %s" % (transport, ", ".join(sorted(_TRANSPORTS))))
        program = os.environ.get("OWLCLAW_MCP") or shutil.which("owlclaw-mcp")
        if program is None:
            raise RuntimeError(
                "mcp.run() starts the program owlclaw-mcp, which is not in PATH; install it, or name it in the "
                "variable OWLCLAW_MCP"
            )
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        if main is None:
            raise RuntimeError("mcp.run() needs the application in a file: run it as `python FILE`")
        taken = ("host", "port", "show_banner") if wanted == "http" else ("show_banner",)
        for name in sorted(name for name, one in options.items() if one is not None and name not in taken):
            print("mcp.run(%s=%r) is passed over: it is the configuration's" % (name, options[name]), file=sys.stderr)
        if transport == "sse":
            print("mcp.run(transport='sse') serves Streamable HTTP at /mcp, and the older transport at /sse", file=sys.stderr)
        command = [program, "start", "--app", os.path.abspath(main), "--transport", wanted]
        if wanted == "http":
            for name in ("host", "port"):
                if options.get(name, self.settings.get(name)) is not None:
                    command += ["--" + name, str(options.get(name, self.settings.get(name)))]
        sys.stdout.flush()
        sys.stderr.flush()
        os.environ.setdefault("MCP_SERVER_PYTHON", sys.executable)
        os.execv(program, command)

    async def run_async(self, transport: typing.Optional[str] = None, **options: typing.Any) -> None:
        """As `run`."""
        self.run(transport, **options)

    run_stdio_async = run_async
    run_http_async = run_async

    def run_stdio(self) -> None:
        """As `run`."""
        self.run()
