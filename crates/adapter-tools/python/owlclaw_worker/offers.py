"""Resources, prompts and completions of an application, and what its decorators say about tools.

The decorators are there as `app.resource`, `app.prompt`, `app.completion`, `app.tool` and `app.lifespan`, of an
application of OwlClaw when it is run by the server, and of `owlclaw_worker.FastMCP` always. The names are FastMCP's.
"""

import base64
import contextlib
import dataclasses
import functools
import inspect
import json
import sys
import typing

from . import around, constraints, content, hints, judge, protocol, schema, streams, templates
from .call import Handler
from .convert import takes_written
from .docstring import parse as parse_docstring

# Where an application has what it offers.
_ATTRIBUTE = "_owlclaw_worker_offers"

# Where a function has what a decorator says about its tool.
ABOUT = "_owlclaw_worker_about"


class Offers:
    """What an application offers besides handlers and states."""

    def __init__(self):
        self.resources = {}
        self.prompts = {}
        self.completions = {}
        self.lifespan = None
        self.middleware = []
        self.notes = []


def of(app):
    """What `app` offers; made when it is first asked for."""
    found = getattr(app, "__dict__", {}).get(_ATTRIBUTE)
    if found is None:
        found = Offers()
        setattr(app, _ATTRIBUTE, found)
    return found


def about_tool(function):
    """What a decorator has said about the tool of a function."""
    for layer in hints.layers(function):
        said = getattr(layer, ABOUT, None)
        if isinstance(said, dict):
            return said
    return {}


# Decorators

# What would protect something: passed over, it would leave it unprotected.
_REFUSED = {
    "auth": "who may use what is the configuration's (`governance`); take the argument away",
    "security": "addresses that would lead elsewhere are none here; take the argument away",
}


def refuse(about):
    """Raise for what is said about something and not in force here, though it would protect it."""
    refused = ["%s= is not in force here: %s" % (key, cure) for key, cure in _REFUSED.items() if about.get(key)]
    if refused:
        raise NotImplementedError("; ".join(refused))


def tool(app, register, name_or_function=None, **about):
    """`@app.tool`, `@app.tool()`, `@app.tool("name")` and `app.tool(function, name="name")`."""
    refuse(about)
    if name_or_function is not None and not isinstance(name_or_function, str):
        return _tool(app, register, name_or_function, about)
    if name_or_function is not None:
        about["name"] = name_or_function
    return lambda function: _tool(app, register, function, about)


class Tool:
    """A function and what is said about its tool, for `add_tool` and `FastMCP(tools=...)`."""

    def __init__(self, fn: typing.Callable[..., typing.Any], **about: typing.Any) -> None:
        self.fn = fn
        self.about = about
        self.name: str = about.get("name") or _name_of(fn)

    @classmethod
    def from_function(cls, fn: typing.Callable[..., typing.Any], name: typing.Optional[str] = None, **about: typing.Any) -> "Tool":
        """A tool made of a function: what else is said is what `@app.tool` takes."""
        return cls(fn, name=name, **about)

    def __repr__(self):
        return "Tool(%r)" % self.name


def _tool(app, register, function, about):
    if isinstance(function, Tool):
        about = {**function.about, **about}
    function = getattr(function, "fn", function)
    name = about.pop("name", None) or _name_of(function)
    said = {key: one for key, one in about.items() if one is not None}
    _check_excluded(function, said.get("exclude_args", ()))
    enabled = said.pop("enabled", True)

    has_other = ABOUT in getattr(function, "__dict__", {})
    if said or has_other:
        # A bound method takes no attributes, and a function that is another tool as well has that one's.
        given = function

        if inspect.ismethod(function) or not hasattr(function, "__dict__") or has_other:
            @functools.wraps(given)
            def function(*arguments, **keywords):
                return given(*arguments, **keywords)

        setattr(function, ABOUT, said)
    if enabled:
        register(name, function)
    return function


def _check_excluded(function, names):
    parameters = hints.signature(function).parameters if names else {}
    for one in names:
        if one not in parameters or parameters[one].default is hints.MISSING:
            raise ValueError("exclude_args names %r, which is no parameter of %s with a default" % (one, _name_of(function)))


def excluded(function):
    """The names of parameters that are no arguments of a tool."""
    return tuple(about_tool(function).get("exclude_args", ()))


def _name_of(function):
    name = getattr(function, "__name__", None) or type(function).__name__
    if name == "<lambda>":
        raise ValueError("a lambda needs a name")
    return name


def resource(app, uri, **about):
    """`@app.resource("config://main")` and `@app.resource("users://{user}/profile")`."""
    if not isinstance(uri, str):
        raise TypeError("a resource is named by its URI: @app.resource('data://config')")
    refuse(about)
    if "://" not in uri:
        raise ValueError("%r is no URI of a resource: it has no scheme, such as data://" % uri)

    def decorate(function):
        function = getattr(function, "fn", function)
        if about.get("enabled", True):
            offers = of(app).resources
            if uri in offers:
                raise ValueError("the resource %r is already registered" % uri)
            offers[uri] = ResourceHandler(uri, function, about)
        return function

    return decorate


def prompt(app, name_or_function=None, **about):
    """`@app.prompt`, `@app.prompt()` and `@app.prompt("name")`."""
    refuse(about)

    def decorate(function):
        function = getattr(function, "fn", function)
        name = about.get("name") or _name_of(function)
        if about.get("enabled", True):
            offers = of(app).prompts
            if name in offers:
                raise ValueError("the prompt %r is already registered" % name)
            offers[name] = PromptHandler(name, function, about)
        return function

    if name_or_function is not None and not isinstance(name_or_function, str):
        return decorate(name_or_function)
    if name_or_function is not None:
        about["name"] = name_or_function
    return decorate


def completion(app, of_what=None, argument=None):
    """`@app.completion("prompt or template", "argument")` of a function that takes the text typed so far, and what is
    known of other arguments if it has a second parameter; `@app.completion()` of one that takes `(ref, argument,
    context)` and answers for everything.
    """

    def decorate(function):
        key = "" if of_what is None else "%s\n%s" % (of_what, argument)
        of(app).completions[key] = CompletionHandler(key, function)
        return function

    if callable(of_what):
        function, of_what = of_what, None
        return decorate(function)
    if of_what is not None and not isinstance(argument, str):
        raise TypeError("a completion is of one argument: @app.completion('prompt', 'argument')")
    return decorate


def lifespan(app, function):
    """`@app.lifespan` of an asynchronous generator, or of what makes an asynchronous context manager."""
    of(app).lifespan = function
    return function


def add_middleware(app, middleware):
    """Run `middleware` around handlers, within what was added before."""
    offered = of(app)
    offered.notes.extend(around.check(middleware))
    offered.middleware.append(middleware)


class LifespanError(Exception):
    """The lifespan of an application is no lifespan."""


class Lifespan:
    """What starts and ends with a worker."""

    def __init__(self, app, loop):
        self._loop = loop
        self._manager = None
        self.state = None
        function = of(app).lifespan
        if function is None:
            return
        self._name = getattr(function, "__name__", type(function).__name__)
        if inspect.isasyncgenfunction(function):
            function = contextlib.asynccontextmanager(function)
        elif inspect.isgeneratorfunction(function):
            function = contextlib.contextmanager(function)
        elif inspect.iscoroutinefunction(function):
            raise LifespanError(self._has_to("it has no `yield`"))
        try:
            hints.signature(function).bind(app)
        except TypeError:
            self._manager = function()
        else:
            self._manager = function(app)
        if not any(hasattr(self._manager, name) for name in ("__aenter__", "__enter__")):
            raise LifespanError(self._has_to("it returns a %s" % type(self._manager).__name__))

    def _has_to(self, what):
        return "the lifespan %r has to yield once, between what begins with a worker and what ends with it: %s" % (self._name, what)

    def begin(self):
        """Start it, before the first call."""
        self._carry_out(self.enter())

    async def enter(self):
        """Start it, where a loop runs."""
        if self._manager is None:
            return
        try:
            is_async = hasattr(self._manager, "__aenter__")
            self.state = await self._manager.__aenter__() if is_async else self._manager.__enter__()
        except RuntimeError as error:
            if str(error) != "generator didn't yield":
                raise
            raise LifespanError(self._has_to("it ends without")) from None

    def end(self):
        """End it, after the last call."""
        self._carry_out(self.leave())

    def _carry_out(self, step):
        if hasattr(self._manager, "__aenter__"):
            self._loop.run_until_complete(step)
            return
        # Outside of the loop: what is synchronous may run one of its own.
        try:
            step.send(None)
        except StopIteration:
            pass

    async def leave(self):
        """End it, where a loop runs."""
        if self._manager is None:
            return
        if hasattr(self._manager, "__aexit__"):
            await self._manager.__aexit__(None, None, None)
        else:
            self._manager.__exit__(None, None, None)


# Handlers of each kind


class _FromTexts(Handler):
    """A handler whose arguments come as texts, and which no schema has been published for: they are judged here by the
    schema of its hints, as the server judges the arguments of tools.
    """

    only_told = True

    # What is said about the tool of the same function is not about it.
    excludes = False

    def __init__(self, name, function):
        super().__init__(name, function)
        for own, alias in self.signature.aliases.items():
            self.signature.problems.append("the alias %r of parameter %r is not used: tools alone have them" % (alias, own))
        self.signature.aliases, self._own_names = {}, {}
        self._wants_text = {one.name: _takes_text(one.hint) for one in self.signature.parameters}
        self._required = [one.name for one in self.signature.parameters if one.default is hints.MISSING and one.factory is None]
        wanted = schema.input_schema(self.signature, {})
        self._schemas, self._definitions = wanted["properties"], wanted.get("$defs", {})
        self._written = {name for name, convert in self._converters if takes_written(convert)}
        # The numbers are in the texts.
        self.takes_written = False

    def bind(self, arguments, context, written=None):
        missing = [name for name in self._required if name not in arguments]
        mistakes = [constraints.InvalidArgument("/" + name, "is missing") for name in missing]
        given = {}
        for name, value in arguments.items():
            try:
                given[name] = self._read(name, value)
            except constraints.InvalidArgument as error:
                mistakes.append(error)
        if mistakes:
            raise constraints.several(mistakes)
        return super().bind(given, context, {name: given[name] for name in given if name in self._exact})

    def _read(self, name, value):
        wanted = self._schemas.get(name, True)
        readings = [value]
        if isinstance(value, str):
            try:
                is_exact = name in self._written or name in self._exact
                read = json.loads(value, parse_float=protocol.Written if is_exact else None)
            except ValueError:
                pass  # A date, say.
            else:
                # A text that is JSON as well is what its hint says first.
                readings.insert(1 if self._wants_text.get(name, True) else 0, read)
        for reading in readings:
            if judge.fits(wanted, self._definitions, reading):
                return reading
        # What is said is about what was meant: a number that is too large is no text that should be a number.
        judge.check(wanted, self._definitions, readings[0], "/" + name)


def _takes_text(hint):
    if hint is hints.MISSING:
        return True
    try:
        hint = hints.peel(hint)[0]
        members = typing.get_args(hint) if hints.is_union(hint) else (hint,)
        return any(one in (str, typing.Any, object) or typing.get_origin(one) is typing.Literal for one in members)
    except Exception:  # Hints are the application's objects.
        return True


class ResourceHandler(_FromTexts):
    """A resource, or a family of them."""

    def __init__(self, uri, function, about):
        super().__init__(uri, function)
        self.about = about
        self.is_template = "{" in uri
        found, optional = templates.variables(uri)
        for name in found:
            if not name.isidentifier():
                raise ValueError("the resource %r has a variable %r, which is no name" % (uri, name))
        taken = {one.name for one in self.signature.parameters}
        required = {one.name for one in self.signature.parameters if one.default is hints.MISSING}
        unknown = [] if self.signature.open else [name for name in found if name not in taken]
        missing = required - set(found)
        if unknown or missing or optional & required:
            raise ValueError(
                "the variables of %r and the parameters of %s do not fit: %s"
                % (uri, _name_of(function), ", ".join(sorted({*unknown, *missing, *(optional & required)})))
            )

    def describe(self, root, source, uses_context=False):
        about = self.about
        doc = inspect.getdoc(hints.underlying(self.function)) if about.get("description") is None else about["description"]
        return {
            "uri": self.name,
            "template": self.is_template,
            "name": str(about.get("name") or _name_of(self.function)),
            "title": about.get("title"),
            "description": doc,
            "mime_type": about.get("mime_type") or "text/plain",
            "annotations": plain(about.get("annotations")),
            **_common(about),
            "async": self.is_async,
            # Whether it may read resources of the server.
            "context": uses_context or bool(self.signature.contexts),
            "source": source(self.function, root),
        }

    def encode(self, call_id, value):
        parts = getattr(value, "contents", None) if not isinstance(value, (dict, list, str, bytes)) else None
        parts = value if parts is None and _are_parts(value) else parts
        if isinstance(parts, (list, tuple)):
            contents = [self._part(one, is_one_of_several=True) for one in parts]
        else:
            contents = [self._part(value if parts is None else parts)]
        return protocol.encode_result(call_id, {"contents": contents})

    def _part(self, value, is_one_of_several=False):
        declared = self.about.get("mime_type")
        if _has_content(value):
            declared = value.mime_type or declared
            value = value.content
        elif content.of_the_sdk(type(value), _SDK_CONTENTS):
            plain = value.model_dump(mode="json", by_alias=True, exclude_none=True)
            return _inner(plain, plain.get("mimeType") or declared)
        block = content.block(value)
        if block is not None and "data" in block:
            return {"blob": block["data"], "mime_type": _first(declared, block["mimeType"], is_one_of_several)}
        if block is not None and "resource" in block:
            inner = block["resource"]
            return _inner(inner, _first(declared, inner.get("mimeType"), is_one_of_several))
        if block is not None and block.get("type") == "text":
            value = block["text"]
        if isinstance(value, (bytes, bytearray, memoryview)):
            blob = base64.b64encode(bytes(value)).decode("ascii")
            return {"blob": blob, "mime_type": declared or "application/octet-stream"}
        if isinstance(value, str):
            return {"text": value, "mime_type": declared or "text/plain"}
        text = protocol.encode_value(value if block is None else block).decode("utf-8")
        return {"text": text, "mime_type": declared or "application/json"}


_SDK_CONTENTS = ("TextResourceContents", "BlobResourceContents")


def _first(declared, own, is_one_of_several):
    """The media type of a part: that of the resource says what it is as a whole, not what several parts are."""
    return own or declared if is_one_of_several else declared or own


def _inner(inner, mime_type):
    part = {key: inner[key] for key in ("text", "blob") if key in inner}
    part["mime_type"] = mime_type
    return part


def _has_content(value):
    return hasattr(value, "content") and hasattr(value, "mime_type")


def _are_parts(value):
    """Tell a list that has parts of a resource from a list that is the resource."""
    return isinstance(value, (list, tuple)) and any(_is_part(one) for one in value)


def _is_part(value):
    kind = type(value)
    if kind in (dict, str, int, float, bool, type(None)):
        return False
    is_bytes = isinstance(value, (bytes, bytearray, memoryview))
    return is_bytes or content.is_block(kind) or content.of_the_sdk(kind, _SDK_CONTENTS) or _has_content(value)


class Message:
    """A message of a prompt."""

    def __init__(self, content: typing.Any, role: str = "user") -> None:
        if role not in ("user", "assistant"):
            raise ValueError("the role of a message is 'user' or 'assistant': %r" % (role,))
        self.content = content
        self.role = role

    def __repr__(self):
        return "Message(%r, role=%r)" % (self.content, self.role)


class UserMessage(Message):
    """A message of the user."""

    def __init__(self, content: typing.Any) -> None:
        super().__init__(content, "user")


class AssistantMessage(Message):
    """A message of the model."""

    def __init__(self, content: typing.Any) -> None:
        super().__init__(content, "assistant")


@dataclasses.dataclass
class PromptResult:
    """What a prompt returns: a text or messages, and a description."""

    messages: typing.Any
    description: typing.Optional[str] = None


@dataclasses.dataclass
class ResourceResult:
    """What a resource returns: a text, bytes, or a list of parts."""

    contents: typing.Any


class PromptHandler(_FromTexts):
    """A prompt."""

    def __init__(self, name, function, about):
        super().__init__(name, function)
        self.about = about

    def bind(self, arguments, context, written=None):
        for name in arguments:
            # No schema has refused it.
            if not self.signature.open and name not in self._wants_text:
                raise constraints.InvalidArgument("/" + name, "is no argument of the prompt")
        return super().bind(arguments, context, written)

    def describe(self, root, source, uses_context=False):
        about = self.about
        parameters = self.signature.parameters
        documented = parse_docstring(
            inspect.getdoc(hints.underlying(self.function)), [one.name for one in parameters]
        )
        arguments = [
            {
                "name": one.name,
                "description": _note(one.hint) or documented.parameters.get(one.name) or None,
                "required": one.default is hints.MISSING,
            }
            for one in parameters
        ]
        return {
            "name": self.name,
            "title": about.get("title"),
            "description": about.get("description") or documented.prose or None,
            "arguments": arguments,
            **_common(about),
            "async": self.is_async,
            # Whether it may read resources of the server.
            "context": uses_context or bool(self.signature.contexts),
            "source": source(self.function, root),
        }

    def encode(self, call_id, value):
        description = None
        if not isinstance(value, (str, dict, list, tuple)) and hasattr(value, "messages"):
            description = getattr(value, "description", None)
            value = value.messages
        said = value if isinstance(value, (list, tuple)) else [value]
        messages = [_prompt_message(one) for one in said]
        return protocol.encode_result(call_id, {"description": description, "messages": messages})


def _prompt_message(value):
    role, said = "user", value
    if isinstance(value, dict) and "role" in value and "content" in value:
        role, said = value["role"], value["content"]
    elif not isinstance(value, (str, dict)) and hasattr(value, "role") and hasattr(value, "content"):
        role, said = value.role, value.content
    if role not in ("user", "assistant"):
        raise ValueError("the role of a message is 'user' or 'assistant': %r" % (role,))
    if isinstance(said, dict) and said.get("type") in ("text", "image", "audio", "resource", "resource_link"):
        return {"role": role, "content": said}
    block = content.block(said)
    return {"role": role, "content": protocol.as_text(said) if block is None else block}


class CompletionHandler(Handler):
    """What suggests values of an argument, or of all arguments."""

    def __init__(self, name, function):
        super().__init__(name, function)
        # Nothing else is converted: the text is what has been typed so far.
        of_parameters = {one.name: one.hint for one in self.signature.parameters}
        self._checks = {name: convert for name, convert in self._converters if constraints.contains(of_parameters[name])}

    def bind(self, arguments, context, written=None):
        given = self._given(arguments)
        for at, parameter in enumerate(self.signature.parameters[: len(given)]):
            if parameter.name in self._checks:
                given[at] = self._checks[parameter.name](given[at], "/" + parameter.name)
        return given, {}

    def _given(self, arguments):
        if self.name:
            takes = len(self.signature.parameters)
            return [arguments["argument"]["value"], arguments["context"]["arguments"]][: max(takes, 1)]
        given = [
            _asked(_REFERENCES.get(arguments["ref"].get("type"), _Plain), arguments["ref"]),
            _asked(CompletionArgument, arguments["argument"]),
            _asked(CompletionContext, arguments["context"]),
        ]
        return given[: len(self.signature.parameters)]

    def encode(self, call_id, value):
        total = has_more = None
        if value is None:
            value = []
        elif hasattr(value, "values") and not callable(value.values):
            total, has_more = getattr(value, "total", None), getattr(value, "hasMore", getattr(value, "has_more", None))
            value = value.values
        if isinstance(value, str):
            value = [value]
        values = [str(one) for one in value]
        return protocol.encode_result(
            call_id, {"values": values[:100], "total": total or len(values), "has_more": bool(has_more or len(values) > 100)}
        )


class _Plain:
    """Members of a dictionary as attributes."""

    def __init__(self, **members: typing.Any) -> None:
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> typing.Any:
        # Copying and pickling ask for what is not there.
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def __eq__(self, other):
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % one for one in self.__dict__.items()))


class PromptReference(_Plain):
    """What an argument belongs to that is completed: a prompt, by its `name`."""

    type: str
    name: str


class ResourceTemplateReference(_Plain):
    """What a variable belongs to that is completed: a template of resources, by its `uri`."""

    type: str
    uri: str


class CompletionArgument(_Plain):
    """What is completed: the `name` of the argument, and the `value` typed so far."""

    name: str
    value: str


class CompletionContext(_Plain):
    """What is known of other `arguments`."""

    arguments: typing.Dict[str, str]


class Completion:
    """Suggested values, and how many there are."""

    def __init__(
        self,
        values: typing.Sequence[str],
        total: typing.Optional[int] = None,
        has_more: typing.Optional[bool] = None,
        hasMore: typing.Optional[bool] = None,
    ) -> None:
        """`hasMore` is what version 1 of the SDK calls `has_more`."""
        self.values = values
        self.total = total
        self.has_more = hasMore if has_more is None else has_more


_REFERENCES = {"ref/prompt": PromptReference, "ref/resource": ResourceTemplateReference}


def _asked(kind, members):
    """What a request has, as an object of the SDK's class of this name if the application has imported those: it tells
    prompts from templates by them. Otherwise it is one of ours.
    """
    for module in ("mcp.types", "mcp_types"):
        theirs = getattr(sys.modules.get(module), kind.__name__, None)
        if isinstance(theirs, type) and callable(getattr(theirs, "model_validate", None)):
            return theirs.model_validate(members)
    return kind(**members)


def _note(hint):
    try:
        for note in hints.peel(hint)[1]:
            text = note if isinstance(note, str) else getattr(note, "description", None)
            if isinstance(text, str):
                return text
    except Exception:  # Hints are the application's objects.
        pass
    return None


def plain(value):
    """A value of the SDK's types as JSON has it."""
    if value is None:
        return None
    if callable(getattr(value, "model_dump", None)):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return protocol.to_plain(value)


def _common(about):
    return {
        "tags": sorted(str(tag) for tag in about.get("tags") or ()),
        "icons": [plain(icon) for icon in about.get("icons") or ()],
        "meta": plain(about.get("meta")) or {},
    }


def tool_members(function):
    """What a decorator says about a tool, for its description."""
    about = about_tool(function)
    annotations = plain(about.get("annotations")) or {}
    title = about.get("title")
    if not title and isinstance(annotations, dict):
        # Where protocol and frameworks had it before tools had titles.
        title = annotations.get("title")
    said = {"title": title, "annotations": annotations, **_common(about)}
    return {name: one for name, one in said.items() if one}


def ready(offers, root, warnings, source, uses_context=False):
    """What the `ready` frame says of them, and their handlers by kind and name."""
    handlers = {}
    described = {"resources": [], "prompts": [], "completions": []}
    for kind, found in (("resource", offers.resources), ("prompt", offers.prompts), ("completion", offers.completions)):
        for name, handler in found.items():
            if handler.signature.refusals:
                warnings.append("%s %r is not offered: %s" % (kind, name, "; ".join(handler.signature.refusals)))
                continue
            warnings.extend("%s %r: %s" % (kind, name, problem) for problem in handler.signature.problems)
            handlers[kind, name] = handler
            if kind == "completion":
                about, _, argument = name.partition("\n")
                described["completions"].append({"of": about, "argument": argument, "async": handler.is_async})
            else:
                described[kind + "s"].append(handler.describe(root, source, uses_context))
    return described, handlers
