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
        tags = set(about.get("tags") or ())
        if tags & self._exclude or (self._include is not None and not tags & self._include):
            return {**about, "enabled": False}
        return about

    def _register(self, name, function):
        if name in self._handlers:
            raise ValueError("the tool %r is already registered" % name)
        self._handlers[name] = function

    def add_tool(self, function: typing.Any, **about: typing.Any) -> typing.Any:
        """Register a function, or a `Tool`."""
        if isinstance(function, offers.Tool):
            about = {**function.about, **about}
        return offers.tool(self, self._register, function, **self._wanted(about))

    def remove_tool(self, name: str) -> None:
        """Take a tool away again."""
        del self._handlers[name]

    def resource(self, uri: str, **about: typing.Any) -> typing.Callable[[_F], _F]:
        """Register a resource, or a family of them: `@mcp.resource("users://{user}")`."""
        decorate: typing.Callable[[_F], _F] = offers.resource(self, uri, **self._wanted(about))
        return decorate

    @typing.overload
    def prompt(self, name_or_function: _F, **about: typing.Any) -> _F: ...

    @typing.overload
    def prompt(self, name_or_function: typing.Optional[str] = None, **about: typing.Any) -> typing.Callable[[_F], _F]: ...

    def prompt(self, name_or_function: typing.Any = None, **about: typing.Any) -> typing.Any:
        """Register a prompt: `@mcp.prompt`, `@mcp.prompt()` or `@mcp.prompt("name", title=...)`."""
        return offers.prompt(self, name_or_function, **self._wanted(about))

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

    def mount(self, server: "FastMCP", prefix: typing.Optional[str] = None, **options: typing.Any) -> None:
        """Take over what another one has now: tools and prompts as `prefix_name`, resources as `scheme://prefix/rest`."""
        prefix = options.get("namespace", prefix)
        if not isinstance(server, FastMCP):
            raise TypeError("only another FastMCP of this package can be mounted, not a %s" % type(server).__name__)
        if offers.of(server).middleware:
            raise NotImplementedError("middleware of a server that is mounted is not run: add it to the one that mounts it")
        for name, function in server._handlers.items():
            self._register("%s_%s" % (prefix, name) if prefix else name, function)
        theirs, ours = offers.of(server), offers.of(self)
        for uri, handler in theirs.resources.items():
            if prefix:
                scheme, _, rest = uri.partition("://")
                uri = "%s://%s/%s" % (scheme, prefix, rest)
            offers.resource(self, uri, **handler.about)(handler.function)
        for name, handler in theirs.prompts.items():
            name = "%s_%s" % (prefix, name) if prefix else name
            offers.prompt(self, **{**handler.about, "name": name})(handler.function)
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
