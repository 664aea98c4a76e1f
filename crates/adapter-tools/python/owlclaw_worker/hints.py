"""What a callable takes and returns: its signature with the type hints resolved."""

import ast
import copy
import dataclasses
import functools
import inspect
import re
import sys
import types
import typing

from . import constraints

MISSING = inspect.Parameter.empty

# Not arguments of the tool: the context a handler gets, and the instance of a method taken from its class.
RESERVED = ("self", "session")

_UNION_TYPES = (typing.Union, getattr(types, "UnionType", typing.Union))


class Parameter(typing.NamedTuple):
    """One named parameter; `hint` and `default` may be MISSING, and `default` Ellipsis: there is one.

    `factory` makes the default where Python's own would be a description of one, such as pydantic's `Field()`.
    """

    name: str
    hint: typing.Any
    default: typing.Any
    positional_only: bool
    factory: typing.Any = None


def settled(parameter):
    """A parameter whose default is what a description of one, such as pydantic's `Field()`, says."""
    field = parameter.default
    if field is MISSING or not constraints.is_field(field):
        return parameter
    hint = typing.Any if parameter.hint is MISSING else parameter.hint
    parameter = parameter._replace(hint=typing.Annotated[(hint, field)])
    factory = getattr(field, "default_factory", None)
    if callable(factory):
        if getattr(field, "default_factory_takes_validated_data", False):
            raise constraints.Unrunnable("the default_factory of %r takes the other arguments" % parameter.name)
        return parameter._replace(default=Ellipsis, factory=factory)
    default = field.default
    if default is Ellipsis or type(default).__name__ in ("PydanticUndefinedType", "UndefinedType", "_MISSING_TYPE"):
        return parameter._replace(default=MISSING)
    return parameter._replace(default=default, factory=lambda: copy.deepcopy(default))


class Signature:
    """The parameters of a handler, `session` apart, and what it returns."""

    def __init__(self, handler):
        self.parameters = []
        self.session = None  # the `session` parameter, if there is one
        self.contexts = []  # the names of those that get the context of the call
        self.aliases = {}  # by own name, those that callers use instead, as pydantic's `Field(alias=)` says
        self.dependencies = {}  # those that are filled in by what `Depends()` names
        self.positional = []  # those that can be given by position only, `session` among them, in order
        self.open = False  # takes **kwargs
        self.open_hint = MISSING
        self.returns = MISSING
        self.problems = []
        self.refusals = []  # why it must not be called
        # pydantic's `validate_call` converts and validates what the function gets, and fills in defaults.
        self.validates_itself = any(hasattr(layer, "raw_function") for layer in layers(handler))
        # False for the few built-in callables that do not say what they take.
        self.readable = True
        try:
            read = signature(handler)
        except (TypeError, ValueError, NameError) as error:
            self.readable = False
            self.open = True
            self.problems.append("its signature cannot be read: %s" % error)
            return
        hints = _Resolver(handler, self.problems, self.refusals)
        for name, parameter in read.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            hint = hints.resolve(name, parameter.annotation)
            if parameter.kind is parameter.VAR_KEYWORD:
                self._take_any(hint)
                continue
            if hint is not MISSING and is_context(hint):
                self.contexts.append(name)
                if parameter.kind is parameter.POSITIONAL_ONLY:
                    self.positional.append(Parameter(name, hint, MISSING, True))
                continue
            dependency = _dependency(hint, parameter.default)
            if dependency is not None and parameter.kind is not parameter.POSITIONAL_ONLY:
                self.dependencies[name] = dependency
                continue
            entry = Parameter(name, hint, parameter.default, parameter.kind is parameter.POSITIONAL_ONLY)
            if name not in RESERVED:
                entry = self._settled(entry)
            if entry.positional_only:
                self.positional.append(entry)
            if name == "session":
                self.session = entry
            elif name not in RESERVED:
                self.parameters.append(entry)
        self.returns = hints.resolve("return", read.return_annotation)
        if not self.validates_itself:
            self._take_aliases()

    def _take_aliases(self):
        taken = {parameter.name for parameter in self.parameters} | {"session"}
        for parameter in self.parameters:
            alias = constraints.alias(parameter.hint)
            if alias is None or alias == parameter.name:
                continue
            if not isinstance(alias, str) or alias in taken:
                why = "another parameter has it" if alias in taken else "it is no single name"
                self.problems.append("the alias %r of parameter %r is not used: %s" % (alias, parameter.name, why))
                continue
            taken.add(alias)
            self.aliases[parameter.name] = alias

    def _settled(self, parameter):
        try:
            metadata = peel(parameter.hint)[1]
        except Exception:  # Hints are the application's objects: one costs only itself.
            return parameter
        try:
            injected = [note for note in (parameter.default, *metadata) if constraints.is_injected(note)]
            if injected:
                raise constraints.Unrunnable(
                    "%r is to be filled in by %s(), which nothing here does, so callers would; leave the parameter "
                    "out and ask for it inside the handler" % (parameter.name, type(injected[0]).__name__)
                )
            settled_parameter = settled(parameter)
        except constraints.Unrunnable as error:
            self.refusals.append("parameter %s" % error)
            return parameter
        notes = constraints.unknown(metadata)
        if notes:
            self.problems.append(
                "what is noted about parameter %r is not known and not run: %s" % (parameter.name, ", ".join(map(repr, notes)))
            )
        return settled_parameter

    def _take_any(self, hint):
        self.open = True
        origin = typing.get_origin(hint)
        if getattr(origin, "__name__", None) == "Unpack" or getattr(origin, "_name", None) == "Unpack":
            # **kwargs: Unpack[SomeTypedDict] names its members, and allows no others.
            (spread,) = typing.get_args(hint)
            if is_typed_dict(spread):
                required = required_keys(spread)
                for name, member in of_class(spread).items():
                    default = MISSING if name in required else Ellipsis
                    self.parameters.append(Parameter(name, member, default, False))
                self.open_hint = typing.NoReturn
            return
        self.open_hint = hint


def _dependency(hint, default):
    """The `Depends()` of a parameter, as its default or noted with its type."""
    from . import around  # which is made of this module's parts

    if isinstance(default, around.Depends):
        return default
    try:
        notes = () if hint is MISSING else peel(hint)[1]
    except Exception:  # Hints are the application's objects.
        return None
    return next((note for note in notes if isinstance(note, around.Depends)), None)


def is_context(hint):
    """Whether a parameter of this hint is to be filled in with the context of the call, and is no argument."""
    from . import context  # which is made of this module's parts

    return context.is_context(hint)


class _Resolver:
    """Evaluates annotations one by one, so that one that cannot be evaluated costs only itself."""

    def __init__(self, handler, problems, refusals):
        function = underlying(handler)
        self._problems = problems
        self._refusals = refusals
        self._globals = getattr(function, "__globals__", {})
        # From Python 3.14 on annotations are a function of their own, with names that they alone use (PEP 649).
        self._locals = {**_closed_over(getattr(function, "__annotate__", None)), **_closed_over(function)}

    def resolve(self, name, annotation):
        if annotation is MISSING:
            return MISSING
        what = "its result" if name == "return" else "parameter %r" % name
        try:
            resolved, unknown = evaluate_known(annotation, self._globals, self._locals)
        except Exception as error:
            told = self._refusals if may_validate(annotation) else self._problems
            told.append("the type of %s cannot be resolved (%s: %s)" % (what, type(error).__name__, error))
            return MISSING
        if unknown:
            # Typically imported under `if TYPE_CHECKING`, and not there when the program runs.
            told = self._refusals if may_validate(annotation) else self._problems
            told.append("the type of %s names what is not defined: %s" % (what, ", ".join(unknown)))
        return resolved


def _closed_over(function):
    """The names around a function that it uses, as far as they have values."""
    code = getattr(function, "__code__", None)
    names = {}
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or ()):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            pass  # not assigned yet
    return names


def signature(called):
    """The signature of a callable, with the text of its annotations where one names what is not defined.

    Before Python 3.14 such a callable cannot be defined, unless its annotations are texts already.
    """
    try:
        return inspect.signature(called)
    except NameError:
        if sys.version_info < (3, 14):
            raise
        import annotationlib

        return inspect.signature(called, annotation_format=annotationlib.Format.STRING)


def _own_annotations(cls):
    """The annotations of a class's own fields, as texts where one names what is not defined, and names only they use."""
    if sys.version_info < (3, 14):
        return cls.__dict__.get("__annotations__", {}), {}
    import annotationlib

    try:
        return annotationlib.get_annotations(cls), {}
    except NameError:
        annotate = annotationlib.get_annotate_from_class_namespace(cls.__dict__)
        return annotationlib.get_annotations(cls, format=annotationlib.Format.STRING), _closed_over(annotate)


def may_validate(annotation):
    """Tell annotations that cannot be evaluated and may have validators."""
    return "Annotated" in str(annotation)


def layers(handler):
    """A handler and what it is wrapped around: by `functools.partial`, as a method, by decorators that tell."""
    for _ in range(100):
        yield handler
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif inspect.ismethod(handler):
            handler = handler.__func__
        elif hasattr(handler, "__wrapped__"):
            handler = handler.__wrapped__
        else:
            return


def owners(handler):
    """The objects and classes whose methods a handler and what it is wrapped around are."""
    return [layer.__self__ for layer in layers(handler) if inspect.ismethod(layer)]


def underlying(handler):
    """The plain function behind partials, methods, callable objects and decorators that tell."""
    for _ in range(100):
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif inspect.ismethod(handler):
            handler = handler.__func__
        elif hasattr(handler, "__wrapped__"):
            handler = handler.__wrapped__
        elif isinstance(handler, type):
            return handler.__init__
        elif inspect.isfunction(handler) or not hasattr(type(handler), "__call__"):
            return handler
        elif inspect.isfunction(type(handler).__call__):
            handler = type(handler).__call__
        else:
            return handler
    return handler


def is_async(handler):
    """Whether calling it yields a coroutine, as far as one can know without calling it."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler) or (
        not inspect.isfunction(handler)
        and not inspect.ismethod(handler)
        and inspect.iscoroutinefunction(getattr(type(handler), "__call__", None))
    )


class _UnknownType(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, _):
        return cls

    def __call__(cls, *_, **__):
        return cls


class Unknown(metaclass=_UnknownType):
    """Stands for a name in an annotation that is not defined: anything, and so are its members."""


def evaluate_known(annotation, global_names, local_names):
    """An annotation with its strings evaluated, and the names in it that are not defined."""
    local_names = dict(local_names)
    unknown = []
    while True:
        try:
            return evaluate(annotation, global_names, local_names), unknown
        except NameError as error:
            quoted = re.findall("'([^']+)'", str(error))
            if not quoted or quoted[0] in unknown or len(unknown) >= 20:
                raise
            unknown.append(quoted[0])
            local_names[quoted[0]] = Unknown


def evaluate(annotation, global_names, local_names):
    """An annotation with its strings and forward references evaluated."""
    if annotation is None:
        return type(None)
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, dict(global_names), dict(local_names), include_extras=True)["it"]
    except TypeError:
        if not isinstance(annotation, str) or sys.version_info >= (3, 10):
            raise
        # `int | None` in a string is legal under `from __future__ import annotations`, but Python 3.9
        # cannot evaluate it.
        tree = ast.parse(annotation.strip(), mode="eval")
        tree = ast.fix_missing_locations(_OldUnions().visit(tree))
        names = {**global_names, "__typing_union__": typing.Union}
        return evaluate(eval(compile(tree, "<annotation>", "eval"), names, dict(local_names)), names, local_names)


class _OldUnions(ast.NodeTransformer):
    def visit_BinOp(self, node):
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitOr):
            return node
        pair = ast.Tuple(elts=[node.left, node.right], ctx=ast.Load())
        union = ast.Name(id="__typing_union__", ctx=ast.Load())
        return ast.Subscript(value=union, slice=pair, ctx=ast.Load())


def of_class(cls, arguments=()):
    """The resolved hints of a class's fields; those that cannot be resolved are MISSING.

    `arguments` are those of a generic class, as in `Page[Item]`.
    """
    resolved = _fields_of_class(cls)
    variables = getattr(cls, "__parameters__", ())
    if arguments and len(arguments) == len(variables):
        given = dict(zip(variables, arguments))
        resolved = {name: substituted(hint, given) for name, hint in resolved.items()}
    return resolved


def _fields_of_class(cls):
    for names in (None, {cls.__name__: cls}):
        try:
            return typing.get_type_hints(cls, localns=names, include_extras=True)
        except Exception:
            continue
    hints = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        annotations, names = _own_annotations(base)
        names[cls.__name__] = cls
        for name, annotation in annotations.items():
            unknown = ()
            try:
                hints[name], unknown = evaluate_known(annotation, getattr(module, "__dict__", {}), names)
            except Exception as error:
                hints[name] = MISSING
                unknown = ("%s: %s" % (type(error).__name__, error),)
            if unknown and may_validate(annotation):
                raise constraints.Unrunnable("the type of %s.%s cannot be resolved: %s" % (cls.__name__, name, unknown[0]))
    return hints


def substituted(hint, given):
    """A hint with the type variables in it replaced by what is given for them."""
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not variables:
        return hint
    try:
        return hint[tuple(given.get(variable, variable) for variable in variables)]
    except Exception:  # Not everything that has parameters can be given them.
        return hint


def peel(hint):
    """A hint without its wrappers, and the metadata of its `Annotated`s."""
    hint, metadata = peel_to_alias(hint)
    for _ in range(100):
        if not is_alias(hint):
            break
        hint, more = peel_to_alias(alias_value(hint))
        metadata.extend(more)
    return hint, metadata


def peel_to_alias(hint):
    """The same, but an alias (`type Name = ...`) is left as it is: it may contain itself."""
    metadata = []
    for _ in range(100):
        origin = typing.get_origin(hint)
        if hasattr(hint, "__metadata__") and hasattr(hint, "__origin__"):
            metadata.extend(hint.__metadata__)
            hint = hint.__origin__
        elif origin is typing.ClassVar or origin is typing.Final or _is_qualifier(origin):
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, dataclasses.InitVar):
            hint = hint.type
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif isinstance(hint, typing.TypeVar):
            if hint.__constraints__:
                hint = typing.Union[hint.__constraints__]
            else:
                hint = hint.__bound__ if hint.__bound__ is not None else typing.Any
        else:
            break
    return hint, metadata


def is_alias(hint):
    """Whether a hint is an alias made by a `type` statement, given arguments or not."""
    return "TypeAliasType" in (type(hint).__name__, type(typing.get_origin(hint)).__name__)


def alias_value(alias):
    """What an alias stands for."""
    if type(alias).__name__ == "TypeAliasType":
        return alias.__value__
    origin = typing.get_origin(alias)
    return substituted(origin.__value__, dict(zip(origin.__type_params__, typing.get_args(alias))))


def is_self(hint):
    """Whether a hint is `Self`, the class that it is written in."""
    return getattr(hint, "_name", None) == "Self" and not isinstance(hint, type)


def tuple_parts(arguments):
    """The arguments of a tuple as those in front, the one that is repeated (or None), and those behind."""
    if not arguments or arguments == ((),):
        return [], None, []
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return [], arguments[0], []
    front, repeated, behind = [], None, []
    for argument in arguments:
        spread = getattr(argument, "__unpacked__", False) or getattr(typing.get_origin(argument), "_name", "") == "Unpack"
        if not spread:
            (front if repeated is None else behind).append(argument)
            continue
        inner = typing.get_args(argument)
        if getattr(typing.get_origin(argument), "_name", "") == "Unpack":
            inner = typing.get_args(inner[0]) or (typing.Any, Ellipsis)
        its_front, its_repeated, its_behind = tuple_parts(inner)
        (front if repeated is None else behind).extend(its_front)
        if its_repeated is not None:
            repeated = its_repeated
        (front if repeated is None else behind).extend(its_behind)
    return front, repeated, behind


def _is_qualifier(origin):
    return getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly")


def is_union(hint):
    """Whether a (peeled) hint is a union, in either notation."""
    return typing.get_origin(hint) in _UNION_TYPES


def class_of(hint):
    """The class that a hint names, generic or not; None where it names none."""
    origin = typing.get_origin(hint)
    candidate = hint if origin is None else origin
    return candidate if isinstance(candidate, type) else None


def is_typed_dict(cls):
    """Whether `cls` is a TypedDict."""
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_named_tuple(cls):
    """Whether `cls` is a named tuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_pydantic(cls):
    """Whether `cls` is a pydantic model, of version 2 or later."""
    return isinstance(cls, type) and hasattr(cls, "model_validate") and hasattr(cls, "model_json_schema")


def is_old_pydantic(cls):
    """Whether `cls` is a pydantic model of version 1, which version 2 has as `pydantic.v1`."""
    if not isinstance(cls, type) or is_pydantic(cls):
        return False
    return isinstance(getattr(cls, "__fields__", None), dict) and hasattr(cls, "parse_obj")


def is_known_to_pydantic(cls):
    """Tell types, models apart, that say how pydantic validates them: its `HttpUrl`, a dataclass of its own, a custom type."""
    if not isinstance(cls, type) or is_pydantic(cls) or is_old_pydantic(cls):
        return False
    # A dataclass of pydantic 1, whose constructor validates.
    if dataclasses.is_dataclass(cls) and hasattr(cls, "__pydantic_model__"):
        return False
    if hasattr(cls, "__get_pydantic_core_schema__") or is_old_custom(cls) or is_pydantic_dataclass(cls):
        return True
    if not dataclasses.is_dataclass(cls) and not is_typed_dict(cls):
        return False
    # `with_config()`, and `@field_validator` in a dataclass of the standard library.
    members = (member for base in cls.__mro__ for member in vars(base).values())
    return bool(getattr(cls, "__pydantic_config__", None)) or any(
        type(member).__name__ == "PydanticDescriptorProxy" for member in members
    )


def is_old_custom(cls):
    """Tell custom types with the validators of pydantic 1, which version 2 runs as well."""
    return hasattr(cls, "__get_validators__") and not hasattr(cls, "__get_pydantic_core_schema__")


def is_pydantic_dataclass(cls):
    """Tell dataclasses of pydantic's, which validate their members."""
    return isinstance(cls, type) and dataclasses.is_dataclass(cls) and "__pydantic_validator__" in vars(cls)


def is_attrs(cls):
    """Whether `cls` was made by attrs."""
    return isinstance(cls, type) and "__attrs_attrs__" in vars(cls)


def is_record(cls):
    """Whether `cls` has members that its constructor takes by name: a dataclass, or one made by attrs."""
    return dataclasses.is_dataclass(cls) and not is_pydantic_dataclass(cls) or is_attrs(cls)


def member_names(cls):
    """The names of the members of a record."""
    return [field.name for field in (cls.__attrs_attrs__ if is_attrs(cls) else dataclasses.fields(cls))]


def member_notes(cls):
    """The metadata of a record's members, by the names that its constructor has for them."""
    members = cls.__attrs_attrs__ if is_attrs(cls) else dataclasses.fields(cls)
    return {_argument_name(member): member.metadata for member in members}


def _argument_name(member):
    # attrs takes `_x` as `x`, and says so since 22.2.
    return getattr(member, "alias", None) or (member.name.lstrip("_") if hasattr(member, "validator") else member.name)


def required_keys(cls):
    """The keys that a TypedDict must have."""
    required = set(cls.__required_keys__)
    # With postponed annotations the class was made before anybody could see its NotRequired.
    for name, hint in of_class(cls).items():
        for _ in range(10):
            qualifier = getattr(typing.get_origin(hint), "_name", None)
            if qualifier == "NotRequired":
                required.discard(name)
            elif qualifier == "Required":
                required.add(name)
            arguments = typing.get_args(hint)
            if qualifier in ("Required", "NotRequired", "ReadOnly") or hasattr(hint, "__metadata__"):
                hint = arguments[0]
            else:
                break
    return required


def constructor_parameters(cls, arguments=()):
    """What a record's constructor takes, as name, resolved hint and default."""
    hints = of_class(cls, arguments)
    if is_attrs(cls):
        return [_attrs_parameter(member, hints) for member in cls.__attrs_attrs__ if member.init]
    taken = []
    for name, parameter in signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = hints.get(name, parameter.annotation)
        taken.append(settled(Parameter(name, MISSING if isinstance(hint, str) else hint, parameter.default, False)))
    return taken


def tuple_members(cls, resolved):
    """The members of a named tuple."""
    defaults = cls._field_defaults
    return [
        settled(Parameter(name, resolved.get(name, MISSING), defaults.get(name, MISSING), True)) for name in cls._fields
    ]


def _attrs_parameter(member, hints):
    # A converter takes what it takes, whatever the hint says about what it makes of it.
    hint = hints.get(member.name, MISSING)
    if member.converter is not None and not constraints.contains(hint, constraints.has_validators):
        hint = MISSING
    default = member.default
    if type(default).__name__ == "_Nothing":  # Its NOTHING, an enumeration since 22.2.
        default = MISSING
    elif hasattr(default, "factory") and hasattr(default, "takes_self"):
        default = Ellipsis
    return Parameter(_argument_name(member), hint, default, False)
