"""How the arguments of a call become the arguments of a handler.

The rules are those of OwlClaw's registry, with one improvement: a handler that takes `session` and was
not given one gets all arguments as its `session`, as in OwlClaw, *and* the arguments that it names
besides, which OwlClaw would drop.
"""

import sys
import typing

from . import around, constraints, hints, judge, own_rules, protocol, streams
from .constraints import InvalidArgument
from .context import current
from .convert import converter, exact_converter, optional, settled_integers, takes_written

# Members of `session` about the caller. The server alone sets them: an argument of such a name does not
# reach the session.
WHO = ("agent_id", "run_id", "tenant_id", "trigger")


def _is_converted(hint, metadata):
    return constraints.is_validated_or_model(hint, metadata) or hints.class_of(hint) is int


def _contains_validators(hint):
    try:
        return constraints.contains(hint)
    except Exception:  # Hints are the application's objects.
        return False


class Handler:
    """A registered handler, analysed once."""

    # Whether the words of exceptions are for the log, but of those that are made for the caller.
    only_told = False

    # Whether `exclude_args` of a tool's decorator is about it.
    excludes = True

    def __init__(self, name, function):
        self.name = name
        self.function = function
        self.signature = hints.Signature(function)
        self.is_async = hints.is_async(function)
        self._excluded = self._take_out()
        self._names = [parameter.name for parameter in self.signature.parameters]
        self._takes_session = self.signature.session is not None
        self._known = set(self._names)
        if self._takes_session:
            self._known.add("session")
        self._own_names = {alias: name for name, alias in self.signature.aliases.items()}
        self.whole = self._whole()
        # Of which only those are arguments that the schema names.
        self.aliased = [name for pair in self.signature.aliases.items() for name in pair]
        self._told = set()
        self._converters = []
        # By parameter, those that make integers of numbers as they were written.
        self._exact = {}
        self._factories = []
        self._convert_rest = self._exact_rest = None
        if not self.signature.validates_itself:
            for parameter in self.signature.parameters:
                self._prepare(parameter)
            self._prepare_rest()
        else:
            self._prepare_numbers()
        # Whether it wants to know how all numbers were written: it has decimals.
        self.takes_written = takes_written(self._convert_rest) or any(takes_written(convert) for _, convert in self._converters)
        self.rules = self._own_rules()
        self.run = function
        for name, dependency in self.signature.dependencies.items():
            problem = dependency.problem(self.is_async)
            if problem is not None:
                self.signature.refusals.append("parameter %r: %s" % (name, problem))
        if self.signature.dependencies:
            self.run = around.filled_in(function, self.signature.dependencies, self.is_async)
        # What runs it within the middleware of its application.
        self.chain = None
        self._wanted = None  # the schema of its arguments, once middleware has changed them
        self.check_result = None
        try:
            if not self.signature.validates_itself:
                self.check_result = constraints.result_check(self.signature.returns)
        except constraints.Unrunnable as error:
            self.signature.refusals.append("its result: %s" % error)

    def _whole(self):
        """The name, for callers, of the parameter that gets all arguments as one object; None without one.

        The server takes an argument of this name that the schema does not name for all arguments, before it judges them.
        """
        if self._takes_session:
            return "session"
        if self.signature.open or len(self._names) != 1:
            return None
        return self.signature.aliases.get(self._names[0], self._names[0])

    def _take_out(self):
        """The names of parameters that callers neither see nor give: they have their defaults."""
        from . import offers  # which is made of this module's parts

        names = offers.excluded(self.function) if self.excludes else ()
        taken_out = [one for one in self.signature.parameters if one.name in names]
        self.signature.parameters = [one for one in self.signature.parameters if one.name not in names]
        for one in taken_out:
            self.signature.aliases.pop(one.name, None)
        self._defaults = [(one.name, one.factory) for one in taken_out if one.factory is not None]
        return frozenset(names)

    def _prepare_numbers(self):
        """Pass decimals on as they were written to what converts by itself."""
        for parameter in self.signature.parameters:
            convert, exact = self._passed_on(parameter.hint)
            if convert is not None:
                self._converters.append((parameter.name, convert))
            if exact is not None:
                self._exact[parameter.name] = exact
        if self.signature.open_hint not in (hints.MISSING, typing.NoReturn):
            self._convert_rest, self._exact_rest = self._passed_on(self.signature.open_hint)

    def _passed_on(self, hint):
        """What takes the place of the converters of a hint, which is converted elsewhere."""
        try:
            wanted = takes_written(converter(hint))
            has_integers = exact_converter(hint) is not None
        except Exception:  # It is not for us to convert.
            return None, None
        if not wanted and not has_integers:
            return None, None

        def convert(value, _path):
            return value

        convert.takes_written = wanted
        # `validate_arguments` of pydantic 1.
        is_old = any(hasattr(layer, "vd") for layer in hints.layers(self.function))
        return convert, settled_integers(hint, wanted, is_old) if has_integers else None

    def _prepare_rest(self):
        """What is taken by `**rest` is as it came, unless its hint has validators or integers."""
        hint = self.signature.open_hint
        try:
            if hint not in (hints.MISSING, typing.NoReturn) and constraints.contains(hint, _is_converted):
                self._convert_rest, self._exact_rest = converter(hint), exact_converter(hint)
        except constraints.Unrunnable as error:
            self.signature.refusals.append("its other arguments: %s" % error)
        except Exception as error:
            told = self.signature.refusals if _contains_validators(hint) else self.signature.problems
            told.append("its other arguments are not converted: %s: %s" % (type(error).__name__, error))

    def _own_rules(self):
        """What attributes of the function and of what it wraps say, as the `owlclaw:` block of a skill says it."""
        rules = []
        for layer in hints.layers(self.function):
            said = {}
            for name in own_rules.KNOWN:
                try:
                    value = getattr(layer, name, None)
                    if value is not None:
                        said[name] = protocol.to_plain(value)
                except Exception as error:
                    self.signature.refusals.append(
                        "its attribute `%s` cannot be read (%s); write it below `owlclaw:` in the SKILL.md of %r "
                        "and take the attribute away" % (name, error, self.name)
                    )
            self.signature.refusals.extend(own_rules.unread(layer))
            if said and said not in rules:
                rules.append(said)
        for owner in hints.owners(self.function):
            said = own_rules.of_class(owner if isinstance(owner, type) else type(owner))
            if said and said not in rules:
                rules.append(said)
        return rules

    def _prepare(self, parameter):
        try:
            convert = optional(converter(parameter.hint), parameter.default)
        except constraints.Unrunnable as error:
            self.signature.refusals.append("parameter %r: %s" % (parameter.name, error))
            return
        except Exception as error:
            text = "values of %r are not converted: %s: %s" % (parameter.name, type(error).__name__, error)
            (self.signature.refusals if _contains_validators(parameter.hint) else self.signature.problems).append(text)
            return
        if convert is not None:
            self._converters.append((parameter.name, convert))
            exact = optional(exact_converter(parameter.hint), parameter.default)
            if exact is not None:
                self._exact[parameter.name] = exact
        if parameter.factory is not None:
            self._factories.append((parameter.name, parameter.factory))

    def wants_written(self, payload):
        """Whether it is to be given the numbers in the payload of its frame as they were written."""
        return self.takes_written or (bool(self._exact) or self._exact_rest is not None) and protocol.may_be_rounded(payload)

    def invoke(self, arguments, context, written=None):
        """Call it. May return an awaitable. Raises `InvalidArgument`, and what it raises."""
        if self.chain is None:
            positional, keywords = self.bind(arguments, context, written)
            return streams.collected(self.run(*positional, **keywords))

        def run(given):
            known = written
            if not judge.same(given, arguments):
                self._judge_changed(given, arguments)
                # Numbers as they were written are those of the arguments that were sent.
                known = written and {
                    name: value
                    for name, value in written.items()
                    if name in given and judge.same(given[name], arguments[name])
                }
            positional, keywords = self.bind(given, context, known)
            return self.run(*positional, **keywords)

        return (around.later if self.is_async else around.at_once)(self.chain, arguments, run)

    def judged(self, arguments):
        """As `bind`, of arguments that nothing has judged. Raises `InvalidArgument`."""
        chosen = self._choose(self._under_own_names(arguments), {})
        self._judge_changed({self.signature.aliases.get(name, name): value for name, value in chosen.items()}, {})
        for name in self._wanted.get("required", ()):
            if self._own_names.get(name, name) not in chosen:
                raise InvalidArgument("/" + name, "is missing")
        return self.bind(arguments, {})

    def _judge_changed(self, given, sent):
        """Judge what middleware has made of arguments, as the server has judged those that were sent."""
        if self._wanted is None:
            from . import describe

            self._wanted = describe.input_schema(self)
        properties, definitions = self._wanted.get("properties", {}), self._wanted.get("$defs", {})
        for name in self._wanted.get("required", ()):
            if name in sent and name not in given:
                raise InvalidArgument("/" + name, "is missing")
        for name, value in given.items():
            if name in properties and not (name in sent and judge.same(value, sent[name])):
                judge.check(properties[name], definitions, value, "/" + name)

    def bind(self, arguments, context, written=None):
        """The positional and keyword arguments for the handler. Raises `InvalidArgument`.

        `written` are the arguments with numbers as they were written, where `wants_written` asks for them.
        """
        for name in self._excluded:
            if name in arguments:
                raise InvalidArgument("/" + name, "is no argument")
        if self._own_names:
            arguments = self._under_own_names(arguments)
            written = written and self._under_own_names(written)
        keywords = self._choose(arguments, context)
        whole = self._only(arguments)
        if whole is not None and written is not None:
            written = {whole: {**arguments, **written}}
        for name in self.signature.contexts:
            keywords.pop(name, None)
        mistakes = None
        for name, convert in self._converters:
            if name in keywords:
                if written is not None and name in written and (name in self._exact or takes_written(convert)):
                    keywords[name] = written[name]
                    convert = self._exact.get(name, convert)
                try:
                    keywords[name] = convert(keywords[name], self._place(name))
                except InvalidArgument as error:
                    mistakes = [*(mistakes or ()), error]
        if self._convert_rest is not None:
            for name, value in keywords.items():
                if name not in self._known:
                    convert = self._convert_rest
                    if written is not None and name in written and (self._exact_rest is not None or takes_written(convert)):
                        value = written[name]
                        convert = self._exact_rest or convert
                    try:
                        keywords[name] = convert(value, "/" + name)
                    except InvalidArgument as error:
                        mistakes = [*(mistakes or ()), error]
        if mistakes is not None:
            raise constraints.several(mistakes)
        for name, factory in self._factories:
            if name not in keywords:
                keywords[name] = factory()
        for name, factory in self._defaults:
            keywords[name] = factory()
        for name in self.signature.contexts:
            keywords[name] = current()
        if not self.signature.positional:
            return (), keywords
        positional = []
        for parameter in self.signature.positional:
            if parameter.name in keywords:
                positional.append(keywords.pop(parameter.name))
            elif parameter.default is not hints.MISSING:
                positional.append(parameter.default)
            else:
                raise InvalidArgument(self._place(parameter.name), "is missing")
        return positional, keywords

    def _under_own_names(self, arguments):
        return {self._own_names.get(name, name): value for name, value in arguments.items()}

    def _place(self, name):
        return "/" + self.signature.aliases.get(name, name)

    def _choose(self, arguments, context):
        wants_session = self._takes_session and "session" not in arguments
        if self.signature.open:
            keywords = dict(arguments)
            if self._takes_session:
                keywords["session"] = self._session(arguments, context)
            return keywords
        if not self._known:
            return {}
        if wants_session:
            keywords = {name: arguments[name] for name in self._names if name in arguments}
            keywords["session"] = self._session(arguments, context)
            return keywords
        keywords = {name: value for name, value in arguments.items() if name in self._known}
        if self._takes_session:
            keywords["session"] = self._session(arguments, context)
        whole = self._only(arguments)
        return keywords if whole is None else {whole: dict(arguments)}

    def _only(self, arguments):
        """The one parameter that gets all arguments, since none of them has its name; None where there is none."""
        if self.signature.open or self._takes_session or len(self._known) != 1:
            return None
        (only,) = self._known
        # Nothing at all is not worth more than a default.
        return only if only not in arguments and (arguments or self._is_required(only)) else None

    def _session(self, arguments, context):
        """All arguments, or the one that is named `session`; nothing in them says who calls."""
        who = {
            "agent_id": context.get("client_id"),
            "run_id": context.get("request_id"),
            "tenant_id": "default",
            "trigger": "mcp",
        }
        given = arguments.get("session", arguments)
        if not isinstance(given, dict):
            return given
        if not given:
            # What OwlClaw's own runtime provides.
            return {**who, "focus": None, "payload": {}}
        taken = [name for name in WHO if name in given]
        for name in taken:
            if name not in self._names and name not in self._told:
                self._told.add(name)
                print(
                    "tool %r: the argument %r is not in `session`, where it says who calls; a parameter of that "
                    "name would get it" % (self.name, name),
                    file=sys.stderr,
                )
        return {**given, **{name: who[name] for name in taken}}

    def _is_required(self, name):
        named = [*self.signature.parameters, self.signature.session]
        return any(one is not None and one.name == name and one.default is hints.MISSING for one in named)
