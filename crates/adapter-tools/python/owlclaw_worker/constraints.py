"""Metadata of an `Annotated` besides the type: notes for people, bounds, and validators.

All of them are asked before the handler runs, by the checks of this module where they suffice, else by pydantic;
also bounds that the schema made of hints expresses, since a skill may publish another schema in its place. What neither
can check raises `Unrunnable`, so that the tool is not offered: a validator is never skipped.
"""

import collections.abc
import datetime
import enum
import json
import math
import re
import sys
import typing
import uuid

from . import hints

BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "regex")

# The classes whose text in JSON is what the schema's lengths and patterns are about.
_TEXTS = (str, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, re.Pattern)

_ARRAYS = (list, set, frozenset, collections.deque, collections.abc.Iterable)


class Unrunnable(Exception):
    """A validator is there that cannot be run; `str()` says which and why."""


class InvalidArgument(Exception):
    """A value does not suit its hint; `str()` says where and why."""

    def __init__(self, path, reason):
        super().__init__("%s: %s" % (path or "arguments", reason))
        # The place of each mistake, as a JSON pointer, and what is wrong there.
        self.mistakes = [(path, reason)]


def refused(error, value, path, by=""):
    """What a constructor or a validator has raised of `value`, as an `InvalidArgument`: of pydantic each mistake by its place."""
    if any(base.__name__ == "PydanticErrorMixin" for base in type(error).__mro__):
        raise error  # A type that is not as it should be, and no value.
    mistakes = list(dict.fromkeys(_of_pydantic(error, value)))
    if not mistakes:
        return InvalidArgument(path, "%s%s: %s" % (by and by + " refused it: ", type(error).__name__, error))
    return several([InvalidArgument(path + place, why) for place, why in mistakes])


def _of_pydantic(error, value):
    """Place and message of each mistake of a `ValidationError` of pydantic, of version 1 or 2; none of other errors."""
    cls = type(error)
    if cls.__name__ != "ValidationError" or cls.__module__.partition(".")[0] not in ("pydantic", "pydantic_core"):
        return []
    return [(_pointer(mistake["loc"], value, "missing" in mistake["type"]), mistake["msg"]) for mistake in error.errors()]


def _pointer(location, value, is_missing):
    """The JSON pointer of a location that pydantic gives, without its own words in it: names of the members of a union and of
    validators, and version 1's `__root__`.
    """
    pointer = ""
    for at, step in enumerate(location):
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        elif isinstance(value, dict) and str(step) in value:
            value = value[str(step)]
        elif not (is_missing and isinstance(value, dict) and at == len(location) - 1):
            continue
        pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
    return pointer


def several(mistakes):
    """One `InvalidArgument` that says all that is wrong."""
    if len(mistakes) == 1:
        return mistakes[0]
    told = InvalidArgument("", "")
    shown = [*map(str, mistakes[:MAX_MISTAKES]), *(["and more"] if len(mistakes) > MAX_MISTAKES else [])]
    told.args = ("; ".join(shown),)
    told.mistakes = [place for mistake in mistakes for place in mistake.mistakes]
    return told


# As many as the server tells of what does not fit a schema.
MAX_MISTAKES = 20


class Failed(Exception):
    """A value that a check refuses; `str()` says why."""


def flat(metadata):
    """The members of an `Annotated`, and those that they are groups of."""
    notes = []
    for note in metadata:
        if isinstance(note, str):
            notes.append(note)
            continue
        if getattr(note, "__is_annotated_types_grouped_metadata__", False) and not isinstance(note, type):
            try:
                # Their own bounds are among their members.
                notes.extend(flat(list(note)))
                continue
            except Exception:
                pass  # It is looked at as it is.
        notes.append(note)
        nested = getattr(note, "metadata", None)  # pydantic's Field keeps its constraints there
        if isinstance(nested, (list, tuple)):
            notes.extend(flat(nested))
    return notes


def is_field(value):
    """Tell results of pydantic's `Field()` and dataclasses' `field()` from other defaults."""
    return type(value).__module__ == "dataclasses" and type(value).__name__ == "Field" or any(
        base.__name__ == "FieldInfo" for base in type(value).__mro__
    )


def other_schema(note):
    """The schema of pydantic's `WithJsonSchema`; None of other notes."""
    given = getattr(note, "json_schema", None) if type(note).__name__ == "WithJsonSchema" else None
    return given if isinstance(given, dict) else None


def schema_extra(note):
    """The keywords of JSON Schema, or the function that adds them, of a `Field()` of pydantic; None without any."""
    if not is_field(note):
        return None
    # pydantic 1 has them as arguments of their own.
    extra = getattr(note, "json_schema_extra", None) or getattr(note, "extra", None)
    return extra if callable(extra) or isinstance(extra, dict) else None


def redescribes(metadata):
    """Tell notes by which the schema may admit other values than the hint."""
    return any(other_schema(note) is not None or schema_extra(note) for note in flat(metadata))


def alias(hint):
    """The alias that a `Field()` of pydantic gives a parameter of this hint; None without one."""
    try:
        notes = [note for note in hints.peel(hint)[1] if is_field(note)]
    except Exception:  # Hints are the application's objects.
        return None
    named = [getattr(note, "validation_alias", None) or getattr(note, "alias", None) for note in notes]
    return next((name for name in reversed(named) if name), None)


def is_injected(value):
    """Tell values that ask a framework to fill a parameter in, such as FastAPI's `Depends()`."""
    if isinstance(value, type):
        return False
    name = type(value).__name__
    return name in ("Depends", "Security", "Inject", "Provide", "Dependency") or callable(
        getattr(value, "dependency", None)
    )


def left_over(hint, metadata):
    """Those of the notes about a (peeled) hint that are validators and that the schema does not express."""
    return [note for note in flat(metadata) if _is_validator(note) and not _is_expressed(note, hint)]


def has_validators(_hint, metadata):
    """Tell notes with validators among them."""
    return any(map(_is_validator, flat(metadata)))


def is_validated(hint, metadata):
    """Tell what has validators, be it in the notes or in the class."""
    return has_validators(hint, metadata) or hints.is_known_to_pydantic(hints.class_of(hint))


def is_validated_or_model(hint, metadata):
    """The same, with models of pydantic."""
    cls = hints.class_of(hint)
    return is_validated(hint, metadata) or hints.is_pydantic(cls) or hints.is_old_pydantic(cls)


def contains(hint, look=is_validated, depth=0):
    """Tell hints that `look` finds something in, at any level of their arguments."""
    if depth > 50:
        return False
    hint, metadata = hints.peel(hint)
    if look(hint, metadata):
        return True
    if hints.class_of(hint) is collections.abc.Callable or typing.get_origin(hint) is typing.Literal:
        return False
    return any(contains(argument, look, depth + 1) for argument in typing.get_args(hint) if argument is not Ellipsis)


def unknown(metadata):
    """Those of the notes that look as if they could be run, and nobody here knows how."""
    return [
        note
        for note in flat(metadata)
        if not isinstance(note, (str, type))
        and not _is_validator(note)
        and not is_field(note)
        and (callable(note) or callable(getattr(note, "validate", None)))
    ]


def _is_validator(note):
    if isinstance(note, str):
        return False
    if hasattr(note, "__get_pydantic_core_schema__"):
        return True
    if isinstance(note, type):
        return False
    if _discriminates(note):
        return True
    return bool(_settings(note)) or _own_predicate(note) is not None


def _settings(note):
    """The bounds and other settings of a note by name; those of pydantic's general kind included."""
    # pydantic 1 has them in its `Field()`, pydantic 2 beside it.
    found = {name: getattr(note, name, None) for name in BOUNDS}
    if not is_field(note) and type(note).__module__.startswith("pydantic.") and isinstance(getattr(note, "__dict__", None), dict):
        found.update(vars(note))
    found = {name: value for name, value in found.items() if value is not None and value is not False}
    # Members of a library's own class may happen to have these names.
    return {name: value for name, value in found.items() if not callable(value) and not (value is True and name in BOUNDS)}


def _discriminates(note):
    """Tell a `Field(discriminator=...)`, by which pydantic tells the members of a union apart."""
    return is_field(note) and getattr(note, "discriminator", None) is not None


def _is_expressed(note, hint):
    if hasattr(note, "__get_pydantic_core_schema__") or _discriminates(note) or _own_predicate(note) is not None:
        return False
    kind = _kind(hint)
    return all(_keyword_fits(name, value, kind) for name, value in _settings(note).items())


def _keyword_fits(name, value, kind):
    if name in ("ge", "gt", "le", "lt", "multiple_of"):
        plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return kind == "number" and plain and (name != "multiple_of" or value > 0)
    if name in ("min_length", "max_length"):
        return kind in ("string", "array", "object") and isinstance(value, int) and value >= 0
    if name in ("pattern", "regex"):
        return kind == "string" and is_portable_pattern(value)
    # Types are told apart by the schema; a date is a text in JSON, however strict one is.
    return name == "strict"


def is_portable_pattern(pattern):
    """Tell patterns that mean the same to other validators as to Python's."""
    return isinstance(pattern, str) and not re.search(r"\(\?|\\[AZz]", pattern)


def _kind(hint):
    """The JSON type that schemas of bounds are written for, where there is one."""
    hint, _ = hints.peel(hint)
    if hints.is_union(hint):
        kinds = {_kind(member) for member in typing.get_args(hint) if hints.peel(member)[0] not in (None, type(None))}
        return kinds.pop() if len(kinds) == 1 else None
    cls = hints.class_of(hint)
    if cls in (int, float):
        return "number"
    if cls in _TEXTS or hint is getattr(typing, "LiteralString", str):
        return "string"
    if cls is None or hints.is_typed_dict(cls) or hints.is_named_tuple(cls):
        return None
    if cls in (dict, collections.abc.Mapping, collections.abc.MutableMapping):
        return "object"
    if issubclass(cls, _ARRAYS) and cls.__module__ in ("builtins", "collections", "collections.abc"):
        return None if issubclass(cls, (str, bytes, bytearray, collections.abc.Mapping)) else "array"
    return None


def runner(hint, metadata, convert):
    """`convert`, with the validators among the notes about `hint` run; as it is where there are none.

    Raises `Unrunnable`.
    """
    needed = [note for note in flat(metadata) if _is_validator(note)]
    if not needed:
        return convert
    checks = [own_check(note) for note in needed]
    if all(check is not None for check in checks):
        return _after(convert, checks)
    if all(check is not None or type(note).__name__ == "AfterValidator" for check, note in zip(checks, needed)):
        # Types are told apart by the schema.
        after = [note for note in needed if _settings(note).keys() != {"strict"}]
        try:
            adapter = _adapter(typing.Annotated[(typing.Any, *after)], needed)
        except Unrunnable:
            # A bound that has to know the type.
            return whole(_adapter(typing.Annotated[(hint, *metadata)], needed))
        return _after(convert, [lambda value: adapter.validate_python(value)])
    return whole(adapter_of(hint, metadata, needed))


def adapter_of(hint, metadata, needed=None):
    """Pydantic's adapter of a hint and its notes, where they need it; None where they do not."""
    needed = left_over(hint, metadata) if needed is None else needed
    return _adapter(typing.Annotated[(hint, *metadata)], needed) if _need_pydantic(needed) else None


def is_left_to_pydantic(hint, metadata):
    """Tell hints whose notes have `runner` leave the converting to pydantic, too."""
    return _need_pydantic(left_over(hint, metadata))


def _need_pydantic(needed):
    return not all(own_check(note) is not None or type(note).__name__ == "AfterValidator" for note in needed)


def adapter_of_alias(alias):
    """Pydantic's adapter of an alias (`type Name = ...`, `JsonValue`) whose value has validators that need it: it may contain
    itself, by name. None where they do not.
    """
    needed = left_over(*hints.peel(hints.alias_value(alias)))
    return _adapter(alias, needed) if _need_pydantic(needed) else None


def adapter_of_union(union):
    """Pydantic's adapter of a union that has members of its kind, which it tells apart better than anybody; None of other
    unions, and of those with members that it does not know, or whose validators it would not run.
    """
    if "pydantic" not in sys.modules:
        return None
    try:
        parts = {}
        is_foreign = _is_foreign(union, parts)
        if is_foreign or not any(map(_is_of_pydantic, parts.values())):
            return None
        return _adapter(union, [])
    except Exception:  # Hints are the application's objects.
        return None


def _is_of_pydantic(hint):
    cls = hints.class_of(hint)
    return cls is not None and (hints.is_pydantic(cls) or hints.is_known_to_pydantic(cls))


def _is_foreign(hint, seen):
    """Tell hints with notes that pydantic passes over, or with values that are written otherwise than it expects."""
    hint, metadata = hints.peel(hint)
    if id(hint) in seen:
        return False
    seen[id(hint)] = hint
    for note in flat(metadata):
        package = type(note).__module__.partition(".")[0]
        if _is_validator(note) and not hasattr(note, "__get_pydantic_core_schema__"):
            if package not in ("annotated_types", "pydantic", "pydantic_core"):
                return True
    cls = hints.class_of(hint)
    if typing.get_origin(hint) is typing.Literal:
        return False
    inner = list(typing.get_args(hint))
    if cls is not None:
        if hints.is_old_pydantic(cls) or hints.is_attrs(cls) or old_library(cls) is not None:
            return True
        if issubclass(cls, enum.Enum):
            return not all(isinstance(member.value, (str, int, float)) for member in cls)
        if hints.is_record(cls) or hints.is_typed_dict(cls) or hints.is_named_tuple(cls):
            inner.extend(hints.of_class(cls, tuple(inner)).values())
    return any(_is_foreign(one, seen) for one in inner if one is not Ellipsis and one is not hints.MISSING)


def result_check(hint):
    """The function that validates a result and returns it; None if there is none. Raises `Unrunnable`."""
    if hint is hints.MISSING or not contains(hint, left_over):
        return None
    adapter = _adapter(hint, [hint])
    if not contains(hint, lambda _, metadata: any(map(is_serializer, metadata))):
        return adapter.validate_python
    return lambda value: adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True)


def is_serializer(note):
    """Tell pydantic's `PlainSerializer` and `WrapSerializer`."""
    return type(note).__name__ in ("PlainSerializer", "WrapSerializer")


def as_json(validate_python, validate_json, core_schema):
    """The function of pydantic that validates values of JSON: where a type is strict, a text is only a date in JSON."""
    if "'strict': True" not in repr(core_schema):
        return validate_python

    def validate(value):
        try:
            return validate_python(value)
        except ValueError:
            # As a text a decimal keeps its digits.
            return validate_json(json.dumps(value, default=str))

    return validate


def old_library(cls):
    """The pydantic 1 that runs the validators of a custom type, be it as `pydantic.v1`; None of other classes."""
    if not hints.is_known_to_pydantic(cls) or not hasattr(cls, "__get_validators__"):
        return None
    if any(base.__module__.startswith("pydantic.v1.") for base in cls.__mro__):
        return sys.modules["pydantic.v1"]
    try:
        import pydantic
    except ImportError:
        return None
    return None if hasattr(pydantic, "TypeAdapter") else pydantic


def old_check(hint):
    """The function that has pydantic 1 make a value of one of its types; None of other types. Raises `Unrunnable`."""
    cls = hints.class_of(hint)
    library = old_library(cls)
    if library is None:
        return None
    try:
        model = library.create_model("Value", __root__=(hint, ...))
    except Exception as error:
        raise Unrunnable("%s: pydantic 1 cannot run it: %s: %s" % (_shown(cls), type(error).__name__, error)) from error
    return lambda value: model(__root__=value).__root__


def adapter(hint):
    """Pydantic's adapter of a type that it knows. Raises `Unrunnable`."""
    cls = hints.class_of(hint)
    for validate in cls.__get_validators__() if hints.is_old_custom(cls) else ():
        try:
            hints.signature(validate).bind("value", "information")
        except TypeError as error:
            why = "pydantic 2 calls its validator with a value and information about it: %s" % error
            raise Unrunnable("%s: %s" % (_shown(cls), why)) from error
    return _adapter(hint, [cls])


def _adapter(hint, needed):
    names = ", ".join(_shown(note) for note in needed)
    try:
        import pydantic

        made = pydantic.TypeAdapter
    except (ImportError, AttributeError) as error:
        raise Unrunnable("%s can be run by pydantic 2 only, which is not installed" % names) from error
    try:
        adapter = made(hint)
        if getattr(adapter, "pydantic_complete", True) is False:
            adapter.rebuild(raise_errors=True)
        return adapter
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        where = names + ": " if names else ""
        raise Unrunnable("%spydantic cannot run it: %s: %s" % (where, type(error).__name__, first)) from error


def _shown(note):
    if isinstance(note, type):
        return note.__name__
    # The names of functions and classes, without places in memory.
    text = re.sub(r"<function (?:[^<>\s]+\.|<locals>\.)*([^\s.]+) at 0x[0-9a-fA-F]+>", r"\1", repr(note))
    text = re.sub(r"<(?:[^<>\s]+\.|<locals>\.)*([^<>\s.]+) object at 0x[0-9a-fA-F]+>", r"\1", text)
    return text if len(text) <= 100 else text[:97] + "..."


def _after(convert, checks):
    def run(value, path):
        if convert is not None:
            value = convert(value, path)
        # `Optional` inside of the `Annotated`: bounds are about what is there.
        if value is None:
            checked = [check for check in checks if not getattr(check, "is_own", False)]
        else:
            checked = checks
        for check in checked:
            value = _guarded(check, value, path)
        return value

    return run


def whole(adapter):
    """A converter that leaves all to an adapter of pydantic."""
    validate = as_json(adapter.validate_python, adapter.validate_json, adapter.core_schema)

    def run(value, path):
        return _guarded(validate, value, path)

    return run


def _guarded(check, value, path):
    try:
        return check(value)
    except Failed as error:
        raise InvalidArgument(path, str(error)) from error
    except Exception as error:  # A validator is the application's code.
        raise refused(error, value, path) from error


def own_check(note):
    """A function that returns the value or raises `Failed`, for notes that need no library; else None."""
    if hasattr(note, "__get_pydantic_core_schema__"):
        return None
    predicate = _own_predicate(note)
    settings = _settings(note)
    if any(name not in _OWN for name in settings) or (predicate is None and not settings):
        return None

    def check(value):
        for name, bound in settings.items():
            if not _OWN[name](value, bound):
                raise Failed("expected %s %s" % (_WORDS[name], getattr(bound, "pattern", bound)))
        if predicate is not None and not predicate(value):
            raise Failed("is refused by %s" % _shown(note))
        return value

    check.is_own = True
    return check


_OWN = {
    "ge": lambda value, bound: value >= bound,
    "gt": lambda value, bound: value > bound,
    "le": lambda value, bound: value <= bound,
    "lt": lambda value, bound: value < bound,
    "multiple_of": lambda value, bound: value % bound == 0,
    "min_length": lambda value, bound: len(value) >= bound,
    "max_length": lambda value, bound: len(value) <= bound,
    "pattern": lambda value, bound: re.search(bound, value) is not None,
    "regex": lambda value, bound: re.search(bound, value) is not None,
    "strict": lambda value, bound: True,
}

_WORDS = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "multiple_of": "a multiple of",
    "min_length": "a length of at least",
    "max_length": "a length of at most",
    "pattern": "a match of",
    "regex": "a match of",
}


def _own_predicate(note):
    """The check of annotated-types' `Predicate` and `Timezone`, and of beartype's `Is`; else None."""
    if isinstance(note, type):
        return None
    name = type(note).__name__
    if name == "Predicate" and callable(getattr(note, "func", None)):
        return note.func
    if name == "Not" and callable(getattr(note, "func", None)):
        return lambda value: not note.func(value)
    if name == "Timezone" and hasattr(note, "tz"):
        return lambda value: _is_in(value.tzinfo, note.tz)
    if callable(getattr(note, "is_valid", None)):
        return note.is_valid
    return None


def _is_in(zone, wanted):
    if wanted is None or wanted is Ellipsis:
        return (zone is None) == (wanted is None)
    return str(zone) == wanted if isinstance(wanted, str) else zone == wanted
