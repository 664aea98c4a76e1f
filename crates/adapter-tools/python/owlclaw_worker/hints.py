"""What a callable takes and returns: its signature with the type hints resolved."""

import ast
import dataclasses
import functools
import inspect
import sys
import types
import typing

MISSING = inspect.Parameter.empty

# Not arguments of the tool: the context a handler gets, and the instance of a method taken from its class.
RESERVED = ("self", "session")

_UNION_TYPES = (typing.Union, getattr(types, "UnionType", typing.Union))


class Parameter(typing.NamedTuple):
    """One named parameter; `hint` and `default` may be MISSING."""

    name: str
    hint: typing.Any
    default: typing.Any
    positional_only: bool


class Signature:
    """The parameters of a handler, `session` apart, and what it returns."""

    def __init__(self, handler):
        self.parameters = []
        self.session = None  # the `session` parameter, if there is one
        self.open = False  # takes **kwargs
        self.open_hint = MISSING
        self.returns = MISSING
        self.problems = []
        # False for the few built-in callables that do not say what they take.
        self.readable = True
        try:
            signature = inspect.signature(handler)
        except (TypeError, ValueError, NameError) as error:
            self.readable = False
            self.open = True
            self.problems.append("its signature cannot be read: %s" % error)
            return
        hints = _Resolver(handler, self.problems)
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            hint = hints.resolve(name, parameter.annotation)
            if parameter.kind is parameter.VAR_KEYWORD:
                self._take_any(hint)
                continue
            entry = Parameter(name, hint, parameter.default, parameter.kind is parameter.POSITIONAL_ONLY)
            if name == "session":
                self.session = entry
            elif name not in RESERVED:
                self.parameters.append(entry)
        self.returns = hints.resolve("return", signature.return_annotation)

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


class _Resolver:
    """Evaluates annotations one by one, so that one that cannot be evaluated costs only itself."""

    def __init__(self, handler, problems):
        function = underlying(handler)
        self._problems = problems
        self._globals = getattr(function, "__globals__", {})
        self._locals = {}
        code = getattr(function, "__code__", None)
        for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or ()):
            try:
                self._locals[name] = cell.cell_contents
            except ValueError:
                pass  # not assigned yet

    def resolve(self, name, annotation):
        if annotation is MISSING:
            return MISSING
        try:
            return evaluate(annotation, self._globals, self._locals)
        except Exception as error:
            self._problems.append(
                "the type of %s cannot be resolved (%s: %s)"
                % ("its result" if name == "return" else "parameter %r" % name, type(error).__name__, error)
            )
            return MISSING


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
    return inspect.iscoroutinefunction(handler) or (
        not inspect.isfunction(handler)
        and not inspect.ismethod(handler)
        and inspect.iscoroutinefunction(getattr(type(handler), "__call__", None))
    )


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


def of_class(cls):
    """The resolved hints of a class's fields; those that cannot be resolved are MISSING."""
    for names in (None, {cls.__name__: cls}):
        try:
            return typing.get_type_hints(cls, localns=names, include_extras=True)
        except Exception:
            continue
    hints = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        for name, annotation in base.__dict__.get("__annotations__", {}).items():
            try:
                hints[name] = evaluate(annotation, getattr(module, "__dict__", {}), {cls.__name__: cls})
            except Exception:
                hints[name] = MISSING
    return hints


def peel(hint):
    """A hint without its wrappers, and the metadata of its `Annotated`s."""
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
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif type(origin).__name__ == "TypeAliasType":
            hint = origin.__value__
        elif isinstance(hint, typing.TypeVar):
            if hint.__constraints__:
                hint = typing.Union[hint.__constraints__]
            else:
                hint = hint.__bound__ if hint.__bound__ is not None else typing.Any
        else:
            break
    return hint, metadata


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


def constructor_parameters(cls):
    """What a dataclass's constructor takes, as name, resolved hint and default."""
    hints = of_class(cls)
    taken = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = hints.get(name, parameter.annotation)
        taken.append(Parameter(name, MISSING if isinstance(hint, str) else hint, parameter.default, False))
    return taken
