"""How the arguments of a call become the arguments of a handler.

The rules are those of OwlClaw's registry, with one improvement: a handler that takes `session` and was
not given one gets all arguments as its `session`, as in OwlClaw, *and* the arguments that it names
besides, which OwlClaw would drop.
"""

from . import hints
from .convert import InvalidArgument, converter, optional


class Handler:
    """A registered handler, analysed once."""

    def __init__(self, name, function):
        self.name = name
        self.function = function
        self.signature = hints.Signature(function)
        self.is_async = hints.is_async(function)
        self._names = [parameter.name for parameter in self.signature.parameters]
        self._takes_session = self.signature.session is not None
        self._known = set(self._names)
        if self._takes_session:
            self._known.add("session")
        self._converters = []
        for parameter in self.signature.parameters:
            try:
                convert = optional(converter(parameter.hint), parameter.default)
            except Exception as error:
                self.signature.problems.append(
                    "values of %r are not converted: %s: %s" % (parameter.name, type(error).__name__, error)
                )
                continue
            if convert is not None:
                self._converters.append((parameter.name, convert))

    def bind(self, arguments, context):
        """The positional and keyword arguments for the handler. Raises `InvalidArgument`."""
        keywords = self._choose(arguments, context)
        for name, convert in self._converters:
            if name in keywords:
                keywords[name] = convert(keywords[name], "$.%s" % name)
        if not self.signature.positional:
            return (), keywords
        positional = []
        for parameter in self.signature.positional:
            if parameter.name in keywords:
                positional.append(keywords.pop(parameter.name))
            elif parameter.default is not hints.MISSING:
                positional.append(parameter.default)
            else:
                raise InvalidArgument("$.%s" % parameter.name, "is missing")
        return positional, keywords

    def _choose(self, arguments, context):
        wants_session = self._takes_session and "session" not in arguments
        if self.signature.open:
            keywords = dict(arguments)
            if wants_session:
                keywords["session"] = _session(arguments, context)
            return keywords
        if not self._known:
            return {}
        if wants_session:
            keywords = {name: arguments[name] for name in self._names if name in arguments}
            keywords["session"] = _session(arguments, context)
            return keywords
        keywords = {name: value for name, value in arguments.items() if name in self._known}
        if not keywords and len(self._known) == 1:
            (only,) = self._known
            # Nothing at all is not worth more than a default.
            if arguments or self._is_required(only):
                return {only: dict(arguments)}
        return keywords

    def _is_required(self, name):
        named = [*self.signature.parameters, self.signature.session]
        return any(one is not None and one.name == name and one.default is hints.MISSING for one in named)


def _session(arguments, context):
    """All arguments; for a call without any, what OwlClaw's own runtime provides."""
    if arguments:
        return dict(arguments)
    return {
        "agent_id": context.get("client_id"),
        "run_id": context.get("request_id"),
        "trigger": "mcp",
        "focus": None,
        "payload": {},
        "tenant_id": "default",
    }
