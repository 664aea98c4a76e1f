"""Descriptions of the tools of an application, for the `ready` frame."""

import functools
import inspect
import os

from . import content, hints, offers, protocol, schema
from .docstring import parse as parse_docstring

# A docstring longer than this is cut: it is for a model to read.
MAX_DOC = 64 * 1024


def describe(handler, root, warnings, uses_context=False):
    """The description of one handler; what could not be understood is appended to `warnings`."""
    signature = handler.signature
    doc = _docstring(handler.function)
    documented = parse_docstring(doc, [parameter.name for parameter in signature.parameters])
    description = offers.about_tool(handler.function).get("description") or getattr(handler.function, "description", None)
    if not isinstance(description, str) or not description.strip():
        description = documented.prose
    input_schema, schema_from = _input_schema(handler, documented.parameters, warnings)
    warnings.extend("tool %r: %s" % (handler.name, problem) for problem in signature.problems)
    return {
        "name": handler.name,
        "description": protocol.shortened(description, MAX_DOC),
        "input_schema": input_schema,
        # Rules that the server applies beside those of the skill.
        "rules": handler.rules,
        # The parameter that gets all arguments as one object, unless the schema names it.
        "whole": handler.whole,
        # Both names of parameters that have an alias.
        "aliased": handler.aliased,
        # Why it must not be offered, nor called.
        "refused": "; ".join(signature.refusals) or None,
        # A schema that the handler brought along comes before its skill's; one made of hints comes after.
        "schema_from": schema_from,
        "output_schema": _output_schema(handler, warnings),
        "async": handler.is_async,
        # Whether its calls may read resources of the server.
        "context": uses_context or bool(signature.contexts),
        "source": source(handler.function, root),
        **offers.tool_members(handler.function),
        "doc": None if doc is None else protocol.shortened(doc, MAX_DOC),
    }


def input_schema(handler):
    """The schema of the arguments of a handler."""
    return _input_schema(handler, {}, [])[0]


def _input_schema(handler, documented, warnings):
    declared = declared_schema(handler.function)
    if declared is not None:
        try:
            plain = protocol.to_plain(declared)
        except protocol.Unserializable as error:
            warnings.append("tool %r: its own input schema is ignored: %s" % (handler.name, error))
        else:
            if plain.setdefault("type", "object") == "object":
                return plain, "handler"
            warnings.append("tool %r: its own input schema is ignored: it is not of type object" % handler.name)
    try:
        return schema.input_schema(handler.signature, documented), "hints"
    except Exception as error:  # Hints are the application's objects: anything may happen.
        warnings.append(
            "tool %r: no schema could be made of its hints: %s: %s" % (handler.name, type(error).__name__, error)
        )
        return {"type": "object", "properties": {}, "additionalProperties": True}, "hints"


def _output_schema(handler, warnings):
    declared = offers.about_tool(handler.function).get("output_schema", getattr(handler.function, "output_schema", None))
    if isinstance(declared, dict) and declared:
        try:
            return protocol.to_plain(declared)
        except protocol.Unserializable as error:
            warnings.append("tool %r: its own output schema is ignored: %s" % (handler.name, error))
    try:
        returned = hints.class_of(hints.peel(handler.signature.returns)[0])
        if returned is not None and (content.is_block(returned) or content.is_whole(returned)):
            # It is content, and no object of that shape.
            return None
        return schema.output_schema(handler.signature.returns)
    except Exception as error:
        warnings.append(
            "tool %r: no schema could be made of its result: %s: %s" % (handler.name, type(error).__name__, error)
        )
        return None


def declared_schema(function):
    """The schema that a handler brings along: a tool made from a declaration, or a function given one."""
    for attribute in ("input_schema", "parameters_schema"):
        declared = getattr(function, attribute, None)
        if isinstance(declared, dict) and declared:
            return declared
    return None


def _is_routine(candidate):
    # From Python 3.14 on a partial is a descriptor of methods.
    return inspect.isroutine(candidate) and not isinstance(candidate, functools.partial)


def _docstring(function):
    target = hints.underlying(function)
    for candidate in (function, target):
        # Not the docstring of `functools.partial`, nor of the class of a callable object.
        if _is_routine(candidate) or isinstance(candidate, type):
            doc = inspect.getdoc(candidate)
            if doc:
                return doc
    own = vars(type(function)).get("__doc__") if not _is_routine(function) else None
    module = type(function).__module__
    return inspect.cleandoc(own) if isinstance(own, str) and module not in ("functools", "builtins") else None


def source(function, root):
    """Where a function is written."""
    code = getattr(hints.underlying(function), "__code__", None)
    if code is None:
        return ""
    path = code.co_filename
    if os.path.isabs(path):
        inside = os.path.relpath(path, root)
        path = path if inside.startswith(os.pardir) else inside
    return "%s:%d" % (path, code.co_firstlineno)
