"""JSON values as the types that hints ask for.

A converter exists only where JSON and the hint differ: a parameter hinted `str`, `dict` or `list[str]`
gets its value as it came. Arguments have been validated against the published schema by the server, so
plain types are not checked again, except where a union has to choose between its members.
"""

import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import ipaddress
import pathlib
import re
import typing
import uuid
import zoneinfo

from . import constraints, hints, judge, protocol, schema
from .constraints import InvalidArgument
from .schema import enum_members, key_names


def converter(hint):
    """A function of `(value, path)` that converts, or None where there is nothing to convert.

    With an attribute `takes_written` it is to be given the numbers in its value as `protocol.Written`.
    """
    builder = _Builder()
    convert = builder.build(hint, False)
    if not builder.meets_decimals:
        return convert
    exactly = _Builder(is_written=True).build(hint, False)

    def convert_written(value, path):
        return exactly(value, path)

    convert_written.takes_written = True
    return convert_written


def exact_converter(hint):
    """The converter of numbers that come as `protocol.Written`, where the hint has integers: they become the very integer that
    was written, or are refused. None where it has none.
    """
    builder = _Builder(is_written=True)
    convert = builder.build(hint, False)
    return convert if builder.meets_integers else None


def settled_integers(hint, has_decimals, is_old=False):
    """The converter of `Written` for what makes integers, and perhaps decimals, of numbers by itself."""
    kept = _NoInteger if is_old else decimal.Decimal
    if not constraints.contains(hint, _may_have_fractions):
        kept = None
    return lambda value, path: _settled(value, path, has_decimals, kept)


def takes_written(convert):
    """Tell converters that are to be given numbers as they were written."""
    return getattr(convert, "takes_written", False)


def optional(convert, default):
    """`convert`, letting None pass where that is the default: `x: int = None` says so without saying it."""
    if convert is None or default is not None:
        return convert

    def convert_optional(value, path):
        return None if value is None else convert(value, path)

    convert_optional.takes_written = takes_written(convert)
    return convert_optional


class _Builder:
    def __init__(self, is_written=False):
        # Whether numbers come as they were written, so that what is no decimal has to become a float.
        self._is_written = is_written
        self.meets_decimals = False
        self.meets_integers = False
        self._classes = {}
        self._known = {}
        self._schemas = schema.Generator()  # of members of unions, to tell which of them a value fits
        self._inside = []  # the classes being looked at, for `Self`
        self._depth = 0

    def build(self, hint, strict):
        """`strict` converters also refuse what is not of the hinted type, and are never None."""
        if self._depth > 50:
            return self._nothing(strict)
        hint, metadata = hints.peel_to_alias(hint)
        made = self._built(hint, strict or constraints.redescribes(metadata))
        if not metadata:
            return made
        # Once for the type and once for each way to note something about it.
        convert = constraints.runner(hint, metadata, made)
        if not self._is_written or not constraints.is_left_to_pydantic(hint, metadata):
            return convert
        has_decimals = constraints.contains(hint, _is_decimal)
        return lambda value, path: convert(_settled(value, path, has_decimals), path)

    def _built(self, hint, strict):
        key = (hint, strict, self._inside[-1] if self._inside else None)
        try:
            if key in self._known:
                return self._known[key]
        except TypeError:  # An annotation may be anything, even what cannot be a key.
            key = None
        if key is not None and hints.is_alias(hint):
            # An alias that contains itself stands for itself there.
            self._known[key] = lambda value, path: (self._known[key] or _as_is)(value, path)
        self._depth += 1
        try:
            made = self._alias(hint, strict) if hints.is_alias(hint) else self._make(hint, strict)
        finally:
            self._depth -= 1
        made = self._nothing(strict) if made is None else made
        if key is not None:
            self._known[key] = made
        return made

    def _alias(self, alias, strict):
        adapter = constraints.adapter_of_alias(alias)
        return self.build(hints.alias_value(alias), strict) if adapter is None else self._by_adapter(adapter)

    def _nothing(self, strict):
        """The converter of what is not converted."""
        if self._is_written:
            return _unwritten
        return _as_is if strict else None

    def _expect(self, name, *types):
        check = _expect(name, *types)
        return (lambda value, path: protocol.unwritten(check(value, path))) if self._is_written else check

    def _look_into(self, core_schema):
        """Note what a type of pydantic consists of, which does the converting; return the same of this type alone."""
        described = repr(core_schema).lower()
        has_decimals, has_integers = "decimal" in described, re.search(r"\bint\b", described) is not None
        self.meets_decimals = self.meets_decimals or has_decimals
        self.meets_integers = self.meets_integers or has_integers
        return has_decimals, has_integers

    def _by_pydantic(self, cls, make, core_schema):
        # Its models, whose own parts are not looked at here.
        has_decimals, has_integers = self._look_into(core_schema)
        convert = _by(cls, make)
        if not self._is_written or not has_integers:
            return convert
        return lambda value, path: convert(_settled(value, path, has_decimals), path)

    def _by_old_pydantic(self, cls, make):
        """The same for version 1."""
        kinds = set()
        _collect(cls, kinds)
        has_decimals = any(issubclass(kind, decimal.Decimal) for kind in kinds)
        has_integers = any(issubclass(kind, (int, enum.Enum)) and kind is not bool for kind in kinds)
        self.meets_decimals = self.meets_decimals or has_decimals
        self.meets_integers = self.meets_integers or has_integers
        convert = _by(cls, make)
        if not self._is_written:
            return convert
        if not has_integers:
            return lambda value, path: protocol.unwritten(convert(value, path))
        return lambda value, path: protocol.unwritten(convert(_settled(value, path, has_decimals, _NoInteger), path))

    def _by_adapter(self, adapter):
        has_decimals, has_integers = self._look_into(adapter.core_schema)
        convert = constraints.whole(adapter)
        if not self._is_written:
            return convert
        if not has_integers:
            return lambda value, path: protocol.unwritten(convert(value, path))
        return lambda value, path: protocol.unwritten(convert(_settled(value, path, has_decimals), path))

    def _make(self, hint, strict):
        if hint is None:
            hint = type(None)
        if hints.is_union(hint):
            return self._union(typing.get_args(hint), strict)
        if typing.get_origin(hint) is typing.Literal:
            return self._of_numbers(typing.get_args(hint), _literal(typing.get_args(hint), strict))
        if hints.is_self(hint) and self._inside:
            return self.build(self._inside[-1], strict)
        cls = hints.class_of(hint)
        if cls is None or cls is object or cls is hints.Unknown:
            return None
        if cls is int:
            self.meets_integers = True
            return _strict_integer if strict else _integer
        if cls in _PLAIN:
            return self._expect(*_PLAIN[cls]) if strict else None
        if hints.is_known_to_pydantic(cls):
            check = constraints.old_check(hint)
            return self._by_adapter(constraints.adapter(hint)) if check is None else self._by_old_pydantic(cls, check)
        if issubclass(cls, enum.Enum):
            return self._of_numbers(enum_members(cls), _enum(cls))
        for known, make in _FROM_TEXT:
            if issubclass(cls, known):
                self.meets_decimals = self.meets_decimals or known is decimal.Decimal
                return _from_text(make(cls), cls)
        arguments = typing.get_args(hint)
        if hints.is_pydantic(cls):
            if not getattr(cls, "__pydantic_complete__", True):
                _complete(cls)
            core_schema = getattr(cls, "__pydantic_core_schema__", None)
            validate = constraints.as_json(cls.model_validate, cls.model_validate_json, core_schema)
            return self._by_pydantic(cls, validate, core_schema)
        if hints.is_old_pydantic(cls):
            return self._by_old_pydantic(cls, cls.parse_obj)
        if hints.is_record(cls):
            return self._once(hint, cls, arguments, self._record)
        if hints.is_typed_dict(cls):
            return self._once(hint, cls, arguments, self._typed_dict)
        if hints.is_named_tuple(cls):
            return self._named_tuple(cls, arguments)
        if issubclass(cls, tuple):
            return self._tuple(arguments)
        if issubclass(cls, collections.abc.Mapping):
            return self._mapping(cls, arguments, strict)
        return self._array(cls, arguments, strict)

    def _of_numbers(self, values, convert):
        """`convert` of one of these values, of which none is to be taken for a number that is only next to it."""
        has_integers = any(isinstance(value, int) and not isinstance(value, bool) for value in values)
        self.meets_integers = self.meets_integers or has_integers
        if not self._is_written or convert is None:
            return convert
        return lambda value, path: convert(_integer(value, path) if has_integers else protocol.unwritten(value), path)

    def _once(self, hint, cls, arguments, make):
        """A recursive class is built once; inside it, it stands for itself."""
        if hint not in self._classes:
            self._classes[hint] = None
            self._inside.append(hint)
            try:
                self._classes[hint] = make(cls, arguments)
            finally:
                self._inside.pop()
        elif self._classes[hint] is None:
            return lambda value, path: self._classes[hint](value, path)
        return self._classes[hint]

    def _union(self, members, strict):
        if not strict and all(self.build(member, False) in (None, _unwritten) for member in members):
            return None
        if self._inside:
            members = tuple(self._inside[-1] if hints.is_self(member) else member for member in members)
        concrete = [member for member in members if hints.peel(member)[0] not in (None, type(None))]
        adapter = constraints.adapter_of_union(typing.Union[members]) if len(concrete) > 1 else None
        if adapter is not None:
            return self._by_adapter(adapter)
        branches = [self.build(member, True) for member in concrete]
        rivals = self._rivals(concrete, branches) if len(concrete) > 1 else {}
        allows_none = len(concrete) < len(members)
        # Where every member is plain JSON, the schema has judged; where one is not, a value that suits
        # none of them would surprise the handler.
        only_plain = not strict and all(self.build(member, False) in (None, _unwritten, _integer) for member in concrete)

        def convert(value, path):
            if value is None and allows_none:
                return None
            reason = None
            # Of those for objects, or for lists, the one that knows most of the value.
            kind = type(value)
            for branch in [*_by_fit(rivals[kind], value, path), *branches] if kind in rivals else branches:
                try:
                    return branch(value, path)
                except InvalidArgument as error:
                    reason = error
            # What no branch takes for the integer that the schema took it for is next to one.
            if only_plain and not (isinstance(value, protocol.Written) and value.is_integer()):
                return protocol.unwritten(value) if self._is_written else value
            if len(branches) == 1 and reason is not None:
                raise reason
            raise InvalidArgument(path, "suits no member of its union; the last said: %s" % reason)

        return convert

    def _rivals(self, members, branches):
        """Those members of a union that objects may suit, and that lists may, where there are several: the converter, the
        hint, and the schema and its definitions.
        """
        found = {dict: [], list: []}
        for member, branch in zip(members, branches):
            hint = hints.peel(member)[0]
            cls = hints.class_of(hint)
            if cls is None or typing.get_origin(hint) is typing.Literal:
                continue
            if issubclass(cls, collections.abc.Mapping) or _is_object(cls):
                found[dict].append((branch, hint, member))
            elif issubclass(cls, collections.abc.Iterable) and not issubclass(cls, (str, bytes, bytearray)):
                found[list].append((branch, hint, member))
        return {
            kind: [(branch, hint, self._schemas.schema(member), self._schemas.definitions) for branch, hint, member in several]
            for kind, several in found.items()
            if len(several) > 1
        }

    def _array(self, cls, arguments, strict):
        if cls in (set, collections.abc.Set, collections.abc.MutableSet):
            wrap = set
        elif cls is frozenset:
            wrap = frozenset
        elif cls is collections.deque:
            wrap = collections.deque
        elif cls is list or cls.__module__ == "collections.abc" and issubclass(cls, collections.abc.Iterable):
            wrap = None
        else:
            # A class we know nothing about: its values stay what JSON has for them.
            unseen = [argument for argument in arguments if constraints.contains(argument)]
            if unseen and cls is not collections.abc.Callable:
                raise constraints.Unrunnable("the values in a %s are not looked at: %r" % (cls.__name__, unseen[0]))
            return None
        item = self.build(arguments[0], False) if len(arguments) == 1 else None
        if strict and len(arguments) == 1:
            item = self.build(arguments[0], True)
        if item is None and wrap is None:
            return self._expect("array", list) if strict else None

        def convert(value, path):
            if not isinstance(value, list):
                raise InvalidArgument(path, "expected an array")
            items = value if item is None else [item(one, "%s/%d" % (path, at)) for at, one in enumerate(value)]
            try:
                return items if wrap is None else wrap(items)
            except TypeError as error:
                raise InvalidArgument(path, str(error)) from error

        return convert

    def _tuple(self, arguments):
        front, repeated, behind = hints.tuple_parts(arguments or (typing.Any, Ellipsis))
        front = [self.build(one, False) for one in front]
        behind = [self.build(one, False) for one in behind]
        each = None if repeated is None else self.build(repeated, False)
        least = len(front) + len(behind)

        def convert(value, path):
            if not isinstance(value, list):
                raise InvalidArgument(path, "expected an array")
            if len(value) < least or (repeated is None and len(value) > least):
                raise InvalidArgument(path, "expected %d items%s" % (least, "" if repeated is None else " or more"))
            converters = [*front, *([each] * (len(value) - least)), *behind]
            return tuple(
                one if item is None else item(one, "%s/%d" % (path, at))
                for at, (item, one) in enumerate(zip(converters, value))
            )

        return convert

    def _named_tuple(self, cls, arguments):
        fields = hints.of_class(cls, arguments)
        members = hints.tuple_members(cls, fields)
        items = [optional(self.build(member.hint, False), member.default) for member in members]

        def convert(value, path):
            if not isinstance(value, list) or len(value) > len(items):
                raise InvalidArgument(path, "expected an array of at most %d items" % len(items))
            converted = [
                one if item is None else item(one, "%s/%d" % (path, at))
                for at, (item, one) in enumerate(zip(items, value))
            ]
            missing = {member.name: member.factory() for member in members[len(value) :] if member.factory}
            return _made(cls, value, path, lambda: cls(*converted, **missing))

        return convert

    def _mapping(self, cls, arguments, strict):
        if len(arguments) == 1:  # Counter[str]
            arguments = (arguments[0], int)
        key = self._key(arguments[0]) if len(arguments) == 2 else None
        value_of = self.build(arguments[1], strict) if len(arguments) == 2 else None
        wrap = cls if cls in (collections.OrderedDict, collections.Counter) else None
        if cls is collections.defaultdict:
            wrap = functools.partial(cls, _factory(arguments[1]) if arguments else None)
        if wrap is not None:
            plain = self._mapping(dict, arguments, strict)
            return lambda value, path: wrap(value if plain is None else plain(value, path))
        if key is None and value_of is None:
            return self._expect("object", dict) if strict else None

        def convert(value, path):
            if not isinstance(value, dict):
                raise InvalidArgument(path, "expected an object")
            made = {
                (name if key is None else key(name, _member(path, name))): (
                    one if value_of is None else value_of(one, _member(path, name))
                )
                for name, one in value.items()
            }
            if len(made) < len(value):
                raise InvalidArgument(path, "two of its keys are the same: %s" % ", ".join(map(repr, list(value)[:20])))
            return made

        return convert

    def _key(self, hint):
        """A key is a string in JSON, whatever it stands for."""
        key, metadata = hints.peel(hint)
        return constraints.runner(key, metadata, self._plain_key(key))

    def _plain_key(self, key):
        if hints.is_known_to_pydantic(hints.class_of(key)):
            return self.build(key, False)
        names = key_names(key)
        if names is not None:
            is_plain = all(one is name for name, one in names.items())
            return None if is_plain else _named(names)
        if key in (int, float):
            return _from_text(key, key)
        if isinstance(key, type) and any(issubclass(key, known) for known, _ in _FROM_TEXT):
            return self.build(key, False)
        return None

    def _record(self, cls, arguments):
        taken = hints.constructor_parameters(cls, arguments)
        converters = {member.name: optional(self.build(member.hint, False), member.default) for member in taken}
        required = [member.name for member in taken if member.default is hints.MISSING]
        factories = [(member.name, member.factory) for member in taken if member.factory is not None]

        def convert(value, path):
            _check_members(value, path, required)
            unknown = [name for name in value if name not in converters]
            if unknown:
                raise InvalidArgument(_member(path, unknown[0]), "%s has no such member" % cls.__name__)
            members = _convert_members(value, path, converters)
            for name, factory in factories:
                if name not in members:
                    members[name] = factory()
            return _made(cls, value, path, lambda: cls(**members))

        return convert

    def _typed_dict(self, cls, arguments):
        resolved = hints.of_class(cls, arguments)
        converters = {name: self.build(hint, False) for name, hint in resolved.items()}
        required = hints.required_keys(cls)

        def convert(value, path):
            _check_members(value, path, required)
            return _convert_members(value, path, converters)

        return convert


def _complete(cls):
    """Have pydantic complete a model that names what was not defined yet. Raises `Unrunnable`."""
    try:
        cls.model_rebuild(raise_errors=True)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise constraints.Unrunnable("the model %s is not complete: %s" % (cls.__name__, first)) from error


def _is_object(cls):
    is_model = hints.is_pydantic(cls) or hints.is_old_pydantic(cls) or hints.is_pydantic_dataclass(cls)
    return is_model or hints.is_record(cls)


def _by_fit(rivals, value, path):
    """The converters of those rivals that a value fits, of which the first is to be taken that lets it pass: those first that
    know most of its members.
    """
    fitting = []
    for branch, hint, described, definitions in rivals:
        if judge.fits(described, definitions, value):
            fitting.append((judge.known(described, definitions, value), branch, hint))
    fitting.sort(key=lambda one: -sum(one[0]))
    for known, branch, hint in fitting[1:]:
        best = fitting[0]
        if sum(known) == sum(best[0]) and known != best[0] and _passes(branch, value, path) and _passes(best[1], value, path):
            raise InvalidArgument(
                path, "suits %s and %s alike, and neither knows all of its members" % (_shown(best[2]), _shown(hint))
            )
    return [branch for _, branch, _ in fitting]


def _passes(branch, value, path):
    try:
        branch(value, path)
    except InvalidArgument:
        return False
    return True


def _shown(hint):
    return getattr(hint, "__name__", None) or str(hint)


def _factory(hint):
    """What makes the values of a `defaultdict` that are not there yet; None where the hint names no such class."""
    hint, metadata = hints.peel(hint)
    given = [getattr(note, "default_factory", None) for note in metadata if constraints.is_field(note)]
    given = [one for one in given if callable(one)]
    if given:
        return given[-1]
    cls = hints.class_of(hint)
    if cls is collections.defaultdict:
        arguments = typing.get_args(hint)
        return functools.partial(cls, _factory(arguments[1]) if arguments else None)
    if cls in (int, float, str, bool, bytes, list, dict, set, frozenset, tuple, collections.Counter, collections.OrderedDict, collections.deque):
        return cls
    for abstract, concrete in ((collections.abc.Mapping, dict), (collections.abc.Set, set), (collections.abc.Iterable, list)):
        if cls is not None and cls.__module__ == "collections.abc" and issubclass(cls, abstract):
            return concrete
    return None


def _member(path, name):
    """The JSON pointer of a member of what is at `path`."""
    return "%s/%s" % (path, str(name).replace("~", "~0").replace("/", "~1"))


def _check_members(value, path, required):
    if not isinstance(value, dict):
        raise InvalidArgument(path, "expected an object")
    for name in required:
        if name not in value:
            raise InvalidArgument(_member(path, name), "is missing")


def _convert_members(value, path, converters):
    members = {}
    mistakes = []
    for name, one in value.items():
        convert = converters.get(name)
        try:
            members[name] = one if convert is None else convert(one, _member(path, name))
        except InvalidArgument as error:
            mistakes.append(error)
    if mistakes:
        raise constraints.several(mistakes)
    return members


def _made(cls, value, path, make):
    try:
        return make()
    except Exception as error:  # A constructor is the application's code.
        raise constraints.refused(error, value, path, cls.__name__) from error


def _as_is(value, path):
    return value


def _unwritten(value, path):
    return protocol.unwritten(value)


def _integer(value, path):
    """JSON makes no difference between 3 and 3.0, and `integer` admits both; Python code does."""
    if isinstance(value, float) and value.is_integer():
        return _written_integer(value, path) if isinstance(value, protocol.Written) else int(value)
    return protocol.unwritten(value) if isinstance(value, protocol.Written) else value


def _written_integer(value, path):
    """The integer that was written, where the float made of it is one."""
    written = _as_decimal(value, path)
    if written != written.to_integral_value():
        raise InvalidArgument(path, "%.40s is no integer" % value.text)
    return int(written)


def _as_decimal(value, path):
    try:
        return decimal.Decimal(value.text)
    except decimal.InvalidOperation:
        raise InvalidArgument(path, "%.40s cannot be kept exactly" % value.text) from None


class _NoInteger(decimal.Decimal):
    """A number with a fraction, of which pydantic 1 makes a float, but no integer: it would cut the fraction off."""

    def __int__(self):
        raise ValueError("%s is no integer" % self)


def _settled(value, path, has_decimals, kept=decimal.Decimal):
    """`value`, whose numbers are `Written`, for pydantic, which would take the float next to an integer for that integer.

    `kept` is what becomes of the number that is written there; None refuses it.
    """
    kind = type(value)
    if kind is protocol.Written:
        if not value.is_integer():
            return value if has_decimals else float(value)
        written = _as_decimal(value, path)
        if written != written.to_integral_value():
            if kept is None:
                raise InvalidArgument(path, "%.40s is no integer" % value.text)
            # A float may be wanted: pydantic makes floats of decimals, and integers of those without a fraction.
            return kept(written)
        # Pydantic makes no integers of larger floats than these.
        if abs(value) < 2**53:
            return value if has_decimals else float(value)
        return written if has_decimals else int(written)
    if kind is dict:
        return {name: _settled(one, _member(path, name), has_decimals, kept) for name, one in value.items()}
    if kind is list:
        return [_settled(one, "%s/%d" % (path, at), has_decimals, kept) for at, one in enumerate(value)]
    return value


def _may_have_fractions(hint, _metadata):
    cls = hints.class_of(hint)
    if cls in (list, dict, tuple, set, frozenset):
        return not typing.get_args(hint)
    return not hints.is_union(hint) and hint is not None and cls not in (int, str, bool, type(None))


def _collect(hint, kinds):
    """Add the classes to `kinds` that values of a hint of pydantic 1 consist of."""
    hint, _ = hints.peel(hint)
    if typing.get_origin(hint) is typing.Literal:
        kinds.update(type(value) for value in typing.get_args(hint))
        return
    for argument in typing.get_args(hint):
        _collect(argument, kinds)
    cls = hints.class_of(hint)
    if cls is None or cls in kinds:
        return
    kinds.add(cls)
    if hints.is_old_pydantic(cls):
        members = [field.outer_type_ for field in cls.__fields__.values()]
    elif hints.is_record(cls) or hints.is_typed_dict(cls) or hints.is_named_tuple(cls):
        members = list(hints.of_class(cls).values())
    else:
        members = [getattr(cls, "item_type", None)]  # of its lists and sets
    for member in members:
        _collect(member, kinds)


def _is_decimal(hint, _metadata):
    return hints.class_of(hint) is decimal.Decimal


def _strict_integer(value, path):
    value = _integer(value, path)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(path, "expected an integer")
    return value


_PLAIN = {
    str: ("string", str),
    float: ("number", int, float),
    bool: ("boolean", bool),
    type(None): ("null", type(None)),
}


def _expect(name, *types):
    def check(value, path):
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise InvalidArgument(path, "expected %s" % name)
        return value

    return check


def _literal(values, strict):
    members = {value.value: value for value in values if isinstance(value, enum.Enum)}
    members.update((value.decode("utf-8", "replace"), value) for value in values if isinstance(value, bytes))
    if not members and not strict:
        return None

    def convert(value, path):
        if isinstance(value, (str, int)) and value in members:
            return members[value]
        for literal in values:
            if literal == value and isinstance(literal, bool) == isinstance(value, bool):
                return literal
        raise InvalidArgument(path, "is none of the allowed values")

    return convert


def _enum(cls):
    if issubclass(cls, enum.Flag):

        def convert_flag(value, path):
            return _made(cls, value, path, lambda: cls(_strict_integer(value, path)))

        return convert_flag
    members = enum_members(cls)

    def convert(value, path):
        if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value in members:
            return members[value]
        allowed = ", ".join(repr(member) for member in list(members)[:20])
        raise InvalidArgument(path, "expected one of %s" % allowed)

    return convert


def _named(names):
    def convert(value, path):
        if value not in names:
            raise InvalidArgument(path, "expected one of %s" % ", ".join(repr(name) for name in list(names)[:20]))
        return names[value]

    return convert


def _by(cls, make):
    def convert(value, path):
        return _made(cls, value, path, lambda: make(value))

    return convert


def _from_text(make, cls):
    def convert(value, path):
        if not isinstance(value, str):
            if not issubclass(cls, decimal.Decimal) or isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InvalidArgument(path, "expected a string")
            # By way of its shortest text: 0.1 is meant, not the double nearest to it.
            value = value.text if isinstance(value, protocol.Written) else repr(value)
        try:
            return make(value)
        except Exception as error:
            raise InvalidArgument(path, "%r is no %s" % (value[:100], cls.__name__)) from error

    return convert


_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d+)")


def _iso_text(text):
    """What `fromisoformat` understood before Python 3.11: no `Z`, and six digits of fraction."""
    if text[-1:] in ("Z", "z"):
        text = text[:-1] + "+00:00"
    return _FRACTION.sub(lambda match: "." + match.group(1)[:6].ljust(6, "0"), text)


_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d+)?)S)?)?"
)


def _duration(text):
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v and k != "sign"}
    if not parts:
        raise ValueError("not an ISO 8601 duration: %r" % text)
    length = datetime.timedelta(**{name: float(value.replace(",", ".")) for name, value in parts.items()})
    return -length if match.group("sign") == "-" else length


def _parse_datetime(cls):
    def parse(text):
        if len(text) < 11:
            raise ValueError("a date without a time")
        return cls.fromisoformat(_iso_text(text))

    return parse


# In this order: a datetime is a date.
_FROM_TEXT = (
    (datetime.datetime, _parse_datetime),
    (datetime.date, lambda cls: cls.fromisoformat),
    (datetime.time, lambda cls: lambda text: cls.fromisoformat(_iso_text(text))),
    (datetime.timedelta, lambda cls: _duration),
    (decimal.Decimal, lambda cls: cls),
    (uuid.UUID, lambda cls: cls),
    ((fractions.Fraction, zoneinfo.ZoneInfo), lambda cls: cls),
    (pathlib.PurePath, lambda cls: cls),
    (protocol.ADDRESSES, lambda cls: cls),
    (re.Pattern, lambda cls: re.compile),
    ((bytes, bytearray), lambda cls: lambda text: cls(text, "utf-8")),
)
