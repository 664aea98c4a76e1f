"""Type hints as JSON Schema 2020-12.

Two dialects: what a handler accepts (`Generator()`), and what its result looks like once it is written
as JSON (`Generator(output=True)`). A hint that says nothing we understand becomes `{}`, which admits
everything: refusing a caller because of an exotic annotation would be worse.
"""

import collections
import collections.abc
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import math
import pathlib
import re
import typing
import uuid
import zoneinfo

from . import constraints, hints, protocol
from .docstring import parse as parse_docstring

_SCALARS = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string"},
    bytearray: {"type": "string"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    datetime.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    fractions.Fraction: {"type": "string"},
    zoneinfo.ZoneInfo: {"type": "string"},
    ipaddress.IPv4Address: {"type": "string", "format": "ipv4"},
    ipaddress.IPv6Address: {"type": "string", "format": "ipv6"},
    re.Pattern: {"type": "string", "format": "regex"},
}

_DECIMAL_TEXT = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DECIMAL_INPUT = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DECIMAL_TEXT}]}

# What is written need not satisfy these: a moment without a zone, a fraction of a second.
_LOOSE_FORMATS = ("date-time", "time", "duration")

# A default longer than this, as JSON, is not shown.
_MAX_DEFAULT = 4096

_ARRAYS = (list, set, frozenset, collections.deque, collections.abc.Iterable)
_SETS = (set, frozenset, collections.abc.Set)

_LITERAL_STRING = getattr(typing, "LiteralString", str)


def input_schema(signature, documented):
    """The schema of the arguments of a handler.

    `documented` maps parameter names to what the docstring says about them.
    """
    generator = Generator()
    properties = {}
    required = []
    for parameter in signature.parameters:
        name = signature.aliases.get(parameter.name, parameter.name)
        try:
            schema = generator.schema(parameter.hint)
        except Exception as error:  # Hints are the application's objects: one costs only itself.
            signature.problems.append(
                "no schema could be made of the type of %r: %s: %s" % (parameter.name, type(error).__name__, error)
            )
            schema = {}
        if parameter.default is hints.MISSING:
            required.append(name)
        elif parameter.default is None:
            schema = nullable(schema)
        text = documented.get(parameter.name)
        if text and "description" not in schema:
            schema = {**schema, "description": text}
        properties[name] = with_default(schema, parameter.default)
    root = {"type": "object", "properties": properties}
    if required:
        root["required"] = required
    if signature.open:
        rest = {} if signature.open_hint is typing.NoReturn else generator.schema(signature.open_hint)
        root["additionalProperties"] = False if signature.open_hint is typing.NoReturn else rest or True
    else:
        # A handler of nothing but `session` takes whatever it is given.
        root["additionalProperties"] = signature.session is not None and not properties
    if generator.definitions:
        root["$defs"] = generator.definitions
    signature.problems.extend(generator.problems)
    return root


def output_schema(hint):
    """The schema of a result, or None where the hint does not promise an object of known shape."""
    if hint is hints.MISSING:
        return None
    hint, _ = hints.peel(hint)
    cls = hints.class_of(hint)
    if cls is None:
        return None
    if issubclass(cls, collections.abc.Mapping) and not hints.is_typed_dict(cls):
        arguments = typing.get_args(hint)
        if len(arguments) != 2 or hints.peel(arguments[1])[0] in (typing.Any, object):
            return None
    elif not (
        hints.is_record(cls) or hints.is_typed_dict(cls) or hints.is_pydantic(cls) or hints.is_old_pydantic(cls)
    ):
        return None
    generator = Generator(output=True)
    schema = generator.schema(hint)
    definitions = dict(generator.definitions)
    if "$ref" in schema:
        # MCP wants an object at the root, not a reference to one.
        name = schema["$ref"][len("#/$defs/") :]
        schema = dict(definitions[name])
        if not _mentions(definitions, "#/$defs/" + name):
            del definitions[name]
    if schema.get("type") != "object":
        return None
    if definitions:
        schema["$defs"] = definitions
    return schema


# Keywords that do not restrict values, and so stay outside of a choice.
_NOTES = ("title", "description", "examples", "default")

_NULL = {"type": "null"}


def nullable(schema):
    """`schema`, admitting null as well: a choice, since clients understand neither lists of types nor `nullable`."""
    notes = {key: schema[key] for key in _NOTES if key in schema}
    rest = {key: value for key, value in schema.items() if key not in notes}
    if not rest or rest == _NULL:
        return schema
    for keyword in ("anyOf", "oneOf"):
        if list(rest) == [keyword]:
            branches = rest[keyword]
            return schema if _NULL in branches else {keyword: [*branches, _NULL], **notes}
    return {"anyOf": [rest, _NULL], **notes}


def with_default(schema, default):
    """`schema` with `default`, if that can be written as JSON."""
    if default is hints.MISSING or default is Ellipsis:
        return schema
    try:
        if isinstance(default, enum.Enum) and not isinstance(default, enum.Flag):
            default = next(text for text, member in enum_members(type(default)).items() if member is default)
        plain = protocol.to_plain(default)
        if len(json.dumps(plain)) > _MAX_DEFAULT:
            return schema
    except Exception:  # A default is the application's object: anything may happen.
        return schema
    return {**schema, "default": plain}


class Generator:
    """Makes schemas and collects the definitions they refer to."""

    def __init__(self, output=False):
        self.definitions = {}
        self.problems = []  # warnings for whoever wrote the types
        self._output = output
        self._names = {}
        self._aliases = {}  # the aliases being written out, and their names if they contain themselves
        self._classes = []  # the classes being described, for `Self`
        self._depth = 0

    def schema(self, hint):
        """The schema of one hint, with references into `self.definitions`."""
        # Only a hint that expands into ever new hints gets this deep; classes are defined once.
        if self._depth > 50:
            return {}
        self._depth += 1
        try:
            hint, metadata = hints.peel_to_alias(hint)
            if metadata and (not self._output or any(map(constraints.is_serializer, metadata))):
                adapter = self._adapter(hint, metadata)
                if adapter is not None:
                    return self._adapted(adapter, hint, metadata)
            made = self._alias(hint) if hints.is_alias(hint) else self._bare(hint)
            if not metadata:
                return made
            made = _annotated(made, metadata, "serialization" if self._output else "validation")
            for name, value in made.pop("$defs", {}).items():
                self.definitions.setdefault(name, value)
            return made
        finally:
            self._depth -= 1

    def _adapter(self, hint, metadata):
        """Pydantic's schema of a hint whose validators take other values than the hint says."""
        try:
            return constraints.adapter_of(hint, metadata)
        except constraints.Unrunnable:
            return None  # The tool is refused for it.

    def _adapter_of_alias(self, alias):
        try:
            return constraints.adapter_of_alias(alias)
        except constraints.Unrunnable:
            return None

    def _adapter_of_class(self, cls, arguments):
        """Pydantic's adapter of a type that it can validate and describe."""
        if not hints.is_known_to_pydantic(cls) or constraints.old_library(cls) is not None:
            return None
        if hints.is_old_custom(cls) and not hasattr(cls, "__get_pydantic_json_schema__"):
            return None
        try:
            return constraints.adapter(cls[arguments] if arguments else cls)
        except constraints.Unrunnable:
            return None

    def _adapted(self, adapter, hint, metadata):
        name = self._free_name(hints.class_of(hint) or object)
        try:
            mode = "serialization" if self._output else "validation"
            schema = _plain(adapter.json_schema(ref_template="#/$defs/" + name + ".{model}", mode=mode))
        except Exception:
            return _annotated({}, metadata)  # What pydantic cannot describe, it validates all the same.
        if any(type(note).__name__ in _BEFORE for note in metadata):
            # They are about what comes out of the validator, and checked behind it.
            schema = {keyword: value for keyword, value in schema.items() if keyword not in _BOUNDS}
        for part, value in schema.pop("$defs", {}).items():
            self.definitions["%s.%s" % (name, part)] = value
        return _annotated(schema, [note for note in metadata if isinstance(note, str)])

    def _alias(self, alias):
        """What an alias stands for; a definition if it contains itself."""
        if alias in self._aliases:
            if self._aliases[alias] is None:
                self._aliases[alias] = self._free_name(typing.get_origin(alias) or alias)
                self.definitions[self._aliases[alias]] = {}
            return {"$ref": "#/$defs/" + self._aliases[alias]}
        adapter = None if self._output else self._adapter_of_alias(alias)
        if adapter is not None:
            return self._adapted(adapter, alias, [])
        self._aliases[alias] = None
        made = self.schema(hints.alias_value(alias))
        name = self._aliases[alias]
        if name is None:
            del self._aliases[alias]
            return made
        self.definitions[name] = made
        return {"$ref": "#/$defs/" + name}

    def _bare(self, hint):
        if hint is hints.MISSING or hint is typing.Any or hint is object:
            return {}
        if hint is None:
            return {"type": "null"}
        if hints.is_union(hint):
            return self._union(typing.get_args(hint))
        if typing.get_origin(hint) is typing.Literal:
            return _enumeration(typing.get_args(hint))
        if hint is _LITERAL_STRING:
            return {"type": "string"}
        if hints.is_self(hint) and self._classes:
            return self.schema(self._classes[-1])
        cls = hints.class_of(hint)
        if cls is None or cls is hints.Unknown:
            return {}
        arguments = typing.get_args(hint)
        if cls is tuple and not arguments and hint not in (tuple, typing.Tuple):
            arguments = ((),)  # tuple[()], as its arguments were before Python 3.11
        return self._class(cls, arguments)

    def _class(self, cls, arguments):
        adapted = None if self._output else self._adapter_of_class(cls, arguments)
        if adapted is not None:
            return self._pydantic(cls, (cls, arguments), adapted.json_schema)
        if (hints.is_old_custom(cls) or constraints.old_library(cls) is not None) and hasattr(cls, "__modify_schema__"):
            return self._modified(cls)
        if issubclass(cls, enum.Enum):
            return self._define(cls, (), lambda: _enum(cls, self._output))
        if cls in _SCALARS:
            return self._scalar(cls)
        if issubclass(cls, decimal.Decimal):
            # Not-a-number and infinities are written as null.
            return nullable({"type": "string"}) if self._output else dict(_DECIMAL_INPUT)
        if hints.is_pydantic(cls):
            return self._pydantic(cls, cls, cls.model_json_schema)
        if hints.is_old_pydantic(cls):
            return self._define(cls, (), lambda: self._old_pydantic(cls))
        if hints.is_record(cls):
            return self._define(cls, arguments, lambda: self._record(cls, arguments))
        if hints.is_typed_dict(cls):
            return self._define(cls, arguments, lambda: self._typed_dict(cls, arguments))
        adapted = self._adapter_of_class(cls, arguments) if self._output else None
        if adapted is not None:
            return self._pydantic(cls, (cls, arguments), adapted.json_schema)
        if hints.is_named_tuple(cls):
            return self._named_tuple(cls, arguments)
        if issubclass(cls, tuple):
            return self._tuple(arguments)
        if issubclass(cls, collections.abc.Mapping):
            return self._mapping(arguments)
        if issubclass(cls, (str, pathlib.PurePath, *protocol.ADDRESSES)):
            return {"type": "string"}
        for scalar in (datetime.datetime, datetime.date, bool, int, float, bytes):
            if issubclass(cls, scalar):
                return self._scalar(scalar)
        if issubclass(cls, _ARRAYS) and (cls.__module__ in ("builtins", "collections", "collections.abc") or arguments):
            schema = {"type": "array"}
            if arguments:
                items = self.schema(arguments[0])
                if items:
                    schema["items"] = items
            if issubclass(cls, _SETS):
                schema["uniqueItems"] = True
            return schema
        return {}

    def _scalar(self, cls):
        schema = dict(_SCALARS[cls])
        if self._output and schema.get("format") in _LOOSE_FORMATS:
            del schema["format"]
        # Not-a-number and infinities are written as null.
        return nullable(schema) if self._output and cls is float else schema

    def _union(self, members):
        branches = []
        null = False
        for member in members:
            branch = self.schema(member)
            if not branch:
                return {}
            if branch == {"type": "null"}:
                null = True
            elif branch not in branches:
                branches.append(branch)
        if not branches:
            return {"type": "null"}
        if len(branches) == 1:
            schema = branches[0]
        else:
            schema = {"oneOf" if self._disjoint(branches) else "anyOf": branches}
        return nullable(schema) if null else schema

    def _disjoint(self, branches):
        """Whether no value can satisfy two of them, judged by JSON type alone."""
        seen = set()
        for branch in branches:
            types = self._types(branch)
            if types is None or types & seen:
                return False
            seen |= types
        return True

    def _types(self, schema):
        if "$ref" in schema:
            return self._types(self.definitions.get(schema["$ref"][len("#/$defs/") :], {}))
        kind = schema.get("type")
        if kind is not None:
            kinds = {kind} if isinstance(kind, str) else set(kind)
            # Every integer is a number too, and 3.0 is an integer.
            return kinds | {"integer"} if "number" in kinds else kinds
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                parts = [self._types(branch) for branch in schema[keyword]]
                return None if None in parts else set().union(*parts)
        return None

    def _tuple(self, arguments):
        if not arguments:
            return {"type": "array"}
        front, repeated, behind = hints.tuple_parts(arguments)
        items = [self.schema(one) for one in front]
        if repeated is None:
            return _fixed(items, len(items))
        schema = {"type": "array"}
        if items:
            schema["prefixItems"] = items
        each = {} if behind else self.schema(repeated)
        if each:
            schema["items"] = each
        if items or behind:
            schema["minItems"] = len(items) + len(behind)
        return schema

    def _named_tuple(self, cls, arguments):
        members = hints.tuple_members(cls, hints.of_class(cls, arguments))
        items = []
        for member in members:
            schema = self.schema(member.hint)
            items.append(with_default(nullable(schema) if member.default is None else schema, member.default))
        required = [member for member in members if self._output or member.default is hints.MISSING]
        return _fixed(items, len(required))

    def _mapping(self, arguments):
        schema = {"type": "object"}
        if len(arguments) == 1:  # Counter[str]
            arguments = (arguments[0], int)
        if len(arguments) != 2:
            return schema
        values = self.schema(arguments[1])
        if values:
            schema["additionalProperties"] = values
        names = self._key(arguments[0])
        if names:
            schema["propertyNames"] = names
        return schema

    def _key(self, hint):
        """What a key of a mapping looks like, which in JSON is a string whatever it is."""
        key, _ = hints.peel(hint)
        names = key_names(key)
        if names is not None:
            return {"enum": list(names)}
        if key in (int, float):
            return {"pattern": "^-?[0-9]+$" if key is int else _DECIMAL_TEXT}
        if isinstance(key, type) and key in _SCALARS:
            return {name: value for name, value in self._scalar(key).items() if name == "format"}
        return {}

    def _define(self, cls, arguments, make):
        key = (cls, arguments)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._free_name(cls, arguments)
            # In place before its members are visited, which may refer back to it.
            self.definitions[name] = {"type": "object"}
            self._classes.append(cls[arguments] if arguments else cls)
            try:
                self.definitions[name] = make()
            finally:
                self._classes.pop()
        return {"$ref": "#/$defs/" + name}

    def _free_name(self, cls, arguments=()):
        words = [cls.__name__, *(getattr(argument, "__name__", "") for argument in arguments)]
        # A reference is a URI, in which other letters would have to be escaped.
        base = re.sub(r"[^A-Za-z0-9_]", "_", "_".join(word for word in words if word))
        name = base
        count = 1
        while name in self.definitions:
            count += 1
            name = "%s_%d" % (base, count)
        return name

    def _record(self, cls, arguments):
        if self._output:
            resolved = hints.of_class(cls, arguments)
            members = [
                hints.Parameter(name, resolved.get(name, hints.MISSING), hints.MISSING, False)
                for name in hints.member_names(cls)
            ]
        else:
            members = hints.constructor_parameters(cls, arguments)
        documented = parse_docstring(own_docstring(cls), [member.name for member in members])
        notes = hints.member_notes(cls)
        properties = {}
        required = []
        for member in members:
            schema = self.schema(member.hint)
            if member.default is hints.MISSING:
                required.append(member.name)
            elif member.default is None:
                schema = nullable(schema)
            said = notes.get(member.name) or {}
            for keyword, kind in (("description", str), ("title", str), ("examples", list)):
                if isinstance(said.get(keyword), kind) and keyword not in schema:
                    schema = _plain({**schema, keyword: said[keyword]})
            text = documented.parameters.get(member.name)
            if text and "description" not in schema:
                schema = {**schema, "description": text}
            properties[member.name] = with_default(schema, member.default)
        result = {"type": "object", "properties": properties}
        if documented.prose:
            result["description"] = documented.prose
        if required:
            result["required"] = required
        if not self._output:
            # A constructor refuses names it does not know; a result may be a subclass with more of them.
            result["additionalProperties"] = False
        return result

    def _typed_dict(self, cls, arguments):
        resolved = hints.of_class(cls, arguments)
        required = hints.required_keys(cls)
        documented = parse_docstring(own_docstring(cls), list(resolved))
        properties = {}
        for name, hint in resolved.items():
            schema = self.schema(hint)
            text = documented.parameters.get(name)
            properties[name] = {**schema, "description": text} if text and "description" not in schema else schema
        result = {"type": "object", "properties": properties}
        if documented.prose:
            result["description"] = documented.prose
        if required:
            result["required"] = [name for name in resolved if name in required]
        if getattr(cls, "__closed__", None):
            result["additionalProperties"] = False
        return result

    def _old_pydantic(self, cls):
        """Its own schema is of an older dialect, and does not say where null is allowed."""
        resolved = hints.of_class(cls)
        properties = {}
        required = []
        for field in cls.__fields__.values():
            schema = self.schema(resolved.get(field.name, hints.MISSING))
            schema = _annotated(schema, [field.field_info])
            if field.allow_none:
                schema = nullable(schema)
            if field.name == "__root__":
                return {} if self._output else schema
            if field.required or self._output:
                required.append(field.alias)
            elif field.default is not None:
                schema = with_default(schema, field.default)
            properties[field.alias] = schema
        result = {"type": "object", "properties": properties}
        text = own_docstring(cls)
        if text:
            result["description"] = parse_docstring(text, []).prose
        if required:
            result["required"] = required
        extra = getattr(cls.__config__, "extra", None)
        if not self._output and getattr(extra, "value", extra) == "forbid":
            result["additionalProperties"] = False
        return result

    def _modified(self, cls):
        """What a custom type of pydantic 1 says about itself, such as that it is secret."""
        known = (*_SCALARS, decimal.Decimal, pathlib.Path, list, set, frozenset)
        base = next((base for base in cls.__mro__[1:] if base in known), None)
        items = (cls.item_type,) if hasattr(cls, "item_type") else ()
        schema = {} if base is None else self._class(base, items)
        cls.__modify_schema__(schema)
        return _plain(schema)

    def _pydantic(self, cls, key, describe):
        if key in self._names:
            return {"$ref": "#/$defs/" + self._names[key]}
        name = self._names[key] = self._free_name(cls)
        self.definitions[name] = {}
        try:
            # Its own definitions get names with a dot, which no class of ours has.
            schema = describe(
                ref_template="#/$defs/" + name + ".{model}", mode="serialization" if self._output else "validation"
            )
            schema = _plain(schema)
        except Exception as error:
            # A model with members that pydantic itself cannot describe.
            schema = {"type": "object"} if hints.is_pydantic(cls) else {}
            why = str(error).partition("\n")[0]
            self.problems.append("no schema could be made of %s: %s: %s" % (cls.__name__, type(error).__name__, why))
        if self._output:
            schema = _as_written(schema)
        for part, value in schema.pop("$defs", {}).items():
            self.definitions["%s.%s" % (name, part)] = value
        reference = schema.get("$ref")
        if reference is not None and set(schema) == {"$ref"}:
            # A recursive model is a reference to itself.
            schema = self.definitions[reference[len("#/$defs/") :]]
        self.definitions[name] = schema
        return {"$ref": "#/$defs/" + name}


# Keywords whose members are names of the author's, each with a schema.
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")

# Keywords of what is shown to clients, and of lists of it.
_SHOWN = ("default", "const")
_LISTED = ("examples", "enum")


def _plain(schema):
    """A schema made by others as JSON, without the defaults, examples and bounds that JSON has no number for."""
    if not isinstance(schema, dict):
        return protocol.to_plain(schema)
    made = {}
    for keyword, value in schema.items():
        if keyword == "oneOf" and "discriminator" not in schema:
            # A function tells the members apart, and a value may fit the schemas of several.
            keyword = "anyOf"
        if keyword in _NAMED and isinstance(value, dict):
            made[keyword] = {name: _plain(one) for name, one in value.items()}
        elif keyword in _LISTED and isinstance(value, (list, tuple)):
            written = [one for one in value if _is_written(one)]
            if written:
                made[keyword] = protocol.to_plain(written)
        elif isinstance(value, dict) and keyword not in _SHOWN:
            made[keyword] = _plain(value)
        elif isinstance(value, (list, tuple)) and keyword not in _SHOWN:
            made[keyword] = [_plain(one) for one in value]
        elif _is_written(value):
            made[keyword] = protocol.to_plain(value)
    return made


def _is_written(value):
    try:
        protocol.to_plain(value)
    except protocol.Unserializable:
        return False
    return True


def own_docstring(cls):
    """What somebody wrote about the class itself, not what `dataclass` or `Enum` generated."""
    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(cls.__name__ + "("):
        return None
    return text


def enum_members(cls):
    """What stands for each member of an Enum in JSON: the values, or the names where a value is no scalar."""
    values = {}
    for member in cls:
        value = member.value
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            return {member.name: member for member in cls}
        if isinstance(value, float) and not math.isfinite(value):
            return {member.name: member for member in cls}
        values[value] = member
    return values


def key_names(key):
    """The members of an Enum, a Literal or bool by their names as keys of an object; None for other hints."""
    if isinstance(key, type) and issubclass(key, enum.Enum) and not issubclass(key, enum.Flag):
        members = enum_members(key)
    elif typing.get_origin(key) is typing.Literal:
        members = {getattr(value, "value", value): value for value in typing.get_args(key)}
    elif key is bool:
        members = {True: True, False: False}
    else:
        return None
    return {name if isinstance(name, str) else json.dumps(name, default=str): one for name, one in members.items()}


def _as_written(schema):
    """A schema of results by pydantic, admitting what is written of them."""
    if isinstance(schema, dict):
        made = {
            name: _as_written(value)
            for name, value in schema.items()
            if not (name == "format" and value in _LOOSE_FORMATS)
        }
        # Pydantic refuses not-a-number where there are bounds.
        is_bounded = any(keyword in made for keyword in _NUMBER_BOUNDS.values())
        return nullable(made) if made.get("type") == "number" and not is_bounded else made
    if isinstance(schema, list):
        return [_as_written(value) for value in schema]
    return schema


def _enum(cls, output):
    if issubclass(cls, enum.Flag):
        return {"type": "integer"}  # Any combination of the members is a value.
    # A result is written as the member's value, whatever that is.
    schema = _enumeration([member.value for member in cls] if output else list(enum_members(cls)))
    text = own_docstring(cls)
    if text and text != "An enumeration.":
        schema["description"] = parse_docstring(text, []).prose
    return schema


def _enumeration(values):
    plain = []
    kinds = []
    for value in values:
        try:
            value = protocol.to_plain(value)
        except protocol.Unserializable:
            return {}
        if not any(value == other and type(value) is type(other) for other in plain):
            plain.append(value)
        kind = _KINDS.get(type(value))
        if kind is not None and kind not in kinds:
            kinds.append(kind)
    if plain == [None]:
        return _NULL
    null = None in plain
    schema = {"enum": [value for value in plain if value is not None]}
    kinds = [kind for kind in kinds if kind != "null"]
    if len(kinds) == 1:
        schema["type"] = kinds[0]
    return nullable(schema) if null else schema


_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def _fixed(items, least):
    # Not `"items": false`: to a validator of draft 7, which knows no `prefixItems`, that means no items at all.
    schema = {"type": "array", "minItems": least, "maxItems": len(items)}
    if items:
        schema["prefixItems"] = items
    return schema


_NUMBER_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


# Validators of pydantic that run before its own, and keywords of bounds.
_BEFORE = ("BeforeValidator", "WrapValidator")
_BOUNDS = {*_NUMBER_BOUNDS.values(), *(keyword for pair in _LENGTHS.values() for keyword in pair), "pattern"}


def _annotated(schema, metadata, mode="validation"):
    """Adds what the members of an `Annotated` say, recognised by the names of their attributes."""
    schema = dict(schema)
    for note in constraints.flat(metadata):
        if isinstance(note, str):
            schema.setdefault("description", note)
            continue
        if isinstance(note, type):
            continue
        for attribute, keyword in (("description", "description"), ("documentation", "description"), ("title", "title")):
            text = getattr(note, attribute, None)
            if isinstance(text, str) and text:
                schema.setdefault(keyword, text)
        examples = getattr(note, "examples", None)
        if isinstance(examples, (list, tuple)) and examples:
            schema = {**_plain({"examples": examples}), **schema}
        schema = _extended(_bounded(schema, note), note, mode)
    return schema


def _extended(schema, note, mode):
    """`schema` with the keywords that one note gives, such as `writeOnly`; the schema that it gives instead."""
    instead = constraints.other_schema(note)
    if instead is not None:
        return _plain(instead) if getattr(note, "mode", None) in (None, mode) else schema
    extra = constraints.schema_extra(note)
    if callable(extra):
        schema = copy.deepcopy(schema)
        extra(schema)
        return _plain(schema)
    return {**schema, **_plain(extra)} if extra else schema


def _bounded(schema, note):
    """`schema` with the bounds of one note where they mean something: in each member of a choice, if it is one."""
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            schema = {**schema, keyword: [_bounded(branch, note) for branch in schema[keyword]]}
    kind = schema.get("type")
    # Members of a definition have bounds of their own, and are bounded in its place.
    if "$ref" in schema or kind is None:
        return schema
    schema = dict(schema)
    if kind in ("integer", "number"):
        for attribute, keyword in _NUMBER_BOUNDS.items():
            bound = _bound(getattr(note, attribute, None))
            if bound is not None and (keyword != "multipleOf" or bound > 0):
                schema[keyword] = bound
    for attribute, keyword in zip(("min_length", "max_length"), _LENGTHS.get(kind, ())):
        length = getattr(note, attribute, None)
        if isinstance(length, int) and not isinstance(length, bool) and length >= 0:
            schema[keyword] = length
    if kind == "string":
        for pattern in (getattr(note, "pattern", None), getattr(note, "regex", None)):
            # Patterns that other validators would not understand are checked before the handler runs.
            if constraints.is_portable_pattern(pattern):
                schema["pattern"] = pattern
    return schema


def _bound(value):
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def _mentions(definitions, reference):
    return json.dumps(reference) in json.dumps(definitions)
