"""Values judged by the JSON Schemas that are made of hints, where the server has not judged them: answers to forms,
arguments that come as texts, and calls of tests.

The keywords are those of JSON Schema 2020-12 that `schema` and pydantic write. Formats are left to converters.
"""

import re

from .constraints import InvalidArgument

# A definition that stands for itself admits nothing.
_MAX_DEPTH = 200

_TYPES = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def fits(schema, definitions, value):
    """Tell a value that suits `schema`."""
    try:
        check(schema, definitions, value, "")
    except InvalidArgument:
        return False
    return True


def check(schema, definitions, value, path, depth=0):
    """Raise `InvalidArgument`, with the place, unless the value suits `schema`."""
    if schema is True or schema == {}:
        return
    if schema is False or depth > _MAX_DEPTH:
        raise InvalidArgument(path, "nothing is allowed here")
    if "$ref" in schema:
        check(definitions.get(schema["$ref"].rpartition("/")[2], True), definitions, value, path, depth + 1)
    kinds = schema.get("type")
    if kinds is not None:
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not any(kind not in _TYPES or _TYPES[kind](value) for kind in kinds):
            raise InvalidArgument(path, "expected %s" % " or ".join(kinds))
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None and not any(same(one, value) for one in allowed):
        raise InvalidArgument(path, "expected one of %s" % ", ".join(map(repr, allowed[:20])))
    for part in schema.get("allOf", ()):
        check(part, definitions, value, path, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            _check_choice(schema[keyword], definitions, value, path, depth + 1)
    if isinstance(value, str):
        _check_length(schema, "minLength", "maxLength", value, "characters", path)
        _check_pattern(schema, value, path)
    elif isinstance(value, list):
        _check_items(schema, definitions, value, path, depth + 1)
    elif isinstance(value, dict):
        _check_members(schema, definitions, value, path, depth + 1)
    elif _is_number(value):
        _check_bounds(schema, value, path)


def _check_choice(branches, definitions, value, path, depth):
    reasons = []
    for branch in branches:
        try:
            return check(branch, definitions, value, path, depth)
        except InvalidArgument as error:
            reasons.append(error)
    names = [branch["const"] for branch in branches if isinstance(branch, dict) and "const" in branch]
    if len(names) == len(branches):
        raise InvalidArgument(path, "expected one of %s" % ", ".join(map(repr, names[:20])))
    # The first is what the value is for; the others are null, or other ways to write it.
    raise reasons[0] if reasons else InvalidArgument(path, "nothing is allowed here")


def _check_items(schema, definitions, value, path, depth):
    _check_length(schema, "minItems", "maxItems", value, "items", path)
    front = schema.get("prefixItems", ())
    for at, one in enumerate(value):
        check(front[at] if at < len(front) else schema.get("items", True), definitions, one, "%s/%d" % (path, at), depth)
    if schema.get("uniqueItems") and len(set(map(_frozen, value))) < len(value):
        raise InvalidArgument(path, "has an item twice")


def _check_members(schema, definitions, value, path, depth):
    _check_length(schema, "minProperties", "maxProperties", value, "members", path)
    for name in schema.get("required", ()):
        if name not in value:
            raise InvalidArgument("%s/%s" % (path, _escaped(name)), "is missing")
    properties = schema.get("properties", {})
    # Its patterns name members that `additionalProperties` does not speak of.
    rest = True if "patternProperties" in schema else schema.get("additionalProperties", True)
    for name, one in value.items():
        place = "%s/%s" % (path, _escaped(name))
        if name not in properties and rest is False:
            raise InvalidArgument(place, "is none of its members: %s" % ", ".join(properties))
        check(properties.get(name, rest), definitions, one, place, depth)


def _check_length(schema, least, most, value, of_what, path):
    if len(value) < schema.get(least, 0):
        raise InvalidArgument(path, "expected %s %s or more" % (schema[least], of_what))
    if most in schema and len(value) > schema[most]:
        raise InvalidArgument(path, "expected %s %s at most" % (schema[most], of_what))


def _check_pattern(schema, value, path):
    if "pattern" not in schema:
        return
    try:
        found = re.search(schema["pattern"], value)
    except re.error:
        return  # Written for pydantic's own expressions, and checked by it.
    if found is None:
        raise InvalidArgument(path, "does not match %s" % schema["pattern"])


def _check_bounds(schema, value, path):
    for keyword, is_right in (
        ("minimum", lambda bound: value >= bound),
        ("exclusiveMinimum", lambda bound: value > bound),
        ("maximum", lambda bound: value <= bound),
        ("exclusiveMaximum", lambda bound: value < bound),
    ):
        if keyword in schema and not is_right(schema[keyword]):
            raise InvalidArgument(path, "its %s is %s" % (keyword, schema[keyword]))


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(one, other):
    """Equal as JSON: 1 is 1.0, and not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return one == other


def _frozen(value):
    """What is the same for values that are the `same`, and can be a member of a set."""
    if isinstance(value, list):
        return (list, tuple(map(_frozen, value)))
    if isinstance(value, dict):
        return (dict, frozenset((name, _frozen(one)) for name, one in value.items()))
    return (bool, value) if isinstance(value, bool) else value


def known(schema, definitions, value, depth=0):
    """A byte for each member of the objects in `value`, at any depth: 1 for what `schema` speaks of, 0 for what it merely
    lets pass.
    """
    if not isinstance(value, (dict, list)):
        return b""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        schema = {"additionalProperties": schema is True, "items": schema is True}
    if "$ref" in schema:
        return known(definitions.get(schema["$ref"].rpartition("/")[2], True), definitions, value, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        fitting = [one for one in schema.get(keyword, ()) if fits(one, definitions, value)]
        if fitting:
            return max((known(one, definitions, value, depth + 1) for one in fitting), key=sum)
    if isinstance(value, list):
        front, items = schema.get("prefixItems", ()), schema.get("items", True)
        parts = [front[at] if at < len(front) else items for at in range(len(value))]
        return b"".join(known(part, definitions, one, depth + 1) for part, one in zip(parts, value))
    properties = schema.get("properties")
    rest = schema.get("additionalProperties", properties is None)
    found = []
    for name, one in value.items():
        part = (properties or {}).get(name, rest)
        found.append(b"\0" if part is False else b"\1")
        found.append(known(part, definitions, one, depth + 1))
    return b"".join(found)


def _escaped(name):
    return str(name).replace("~", "~0").replace("/", "~1")
