"""Templates of the addresses of resources (RFC 6570, by as much as FastMCP has of it), and which values they have."""

import re
import unicodedata
import urllib.parse

_VARIABLE = re.compile(r"\{(\?)?([^{}]*)\}")


def variables(uri):
    """The names of the variables of a URI template, and which of them may be left out. Raises `ValueError`."""
    found, optional = [], set()
    for expression in _VARIABLE.finditer(uri):
        is_query, inner = expression.groups()
        if not is_query and "," in inner:
            raise ValueError("the resource %r has several variables in one {}: write {a}/{b}, or {?a,b}" % uri)
        if is_query and expression.end() != len(uri):
            raise ValueError("the resource %r has something behind its {?...}, which comes last" % uri)
        for name in inner.split(","):
            name = _bare(name.strip())
            found.append(name)
            if is_query:
                optional.add(name)
    return found, optional


def _bare(name):
    return name.lstrip("+").rstrip("*")


def match(template, uri):
    """The values of the variables of a template at an address, or None where it is none of the template's. For tests:
    the server has matching of its own, with the same rules.
    """
    if "{" not in template:
        return {} if uri == template else None
    optional = variables(template)[1]
    path, _, query = uri.partition("?") if optional else (uri, "", "")
    pattern, names = "", []
    for at, part in enumerate(re.split(r"(\{[^{}]*\})", template)):
        if at % 2 == 0:
            pattern += re.escape(part)
        elif not part.startswith("{?"):
            name = _bare(part[1:-1])
            is_long = name != part[1:-1]
            names.append((name, is_long))
            pattern += "(.+)" if is_long else "([^/]+)"
    found = re.fullmatch(pattern, path, re.DOTALL)
    if found is None:
        return None
    values = {}
    for (name, is_long), value in zip(names, found.groups()):
        values[name] = _decoded(value, is_long)
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        if not equals or name not in optional or name in values:
            return None
        values[name] = _decoded(value, True)
    return None if None in values.values() else values


def may_be_values(template, given):
    """Tell whether texts can be, or have still to become, the values of variables of a template."""
    short = {part for part in re.findall(r"\{([^{}?]*)\}", template) if part == _bare(part)}
    return all(_is_value(value, name not in short) for name, value in given.items())


# How often a value may have been encoded.
_MAX_DECODED = 4


def _decoded(raw, is_long):
    try:
        value = urllib.parse.unquote(raw, errors="strict")
    except UnicodeDecodeError:
        return None
    return value if _is_value(value, is_long) else None


def _is_value(text, is_long):
    """Tell whether a value stays where a handler puts it in a path, also if that decodes it again."""
    for _ in range(_MAX_DECODED):
        if _leads_elsewhere(text, is_long):
            return False
        try:
            decoded = urllib.parse.unquote(text, errors="strict")
        except UnicodeDecodeError:
            return True
        if decoded == text:
            return True
        text = decoded
    return False


def _leads_elsewhere(text, is_long):
    return (
        any(unicodedata.category(one) == "Cc" for one in text)
        or "\\" in text
        or (not is_long and "/" in text)
        or text.startswith("/")
        # Those of a URL that is a value are its own.
        or re.search("(?<!:)//", text) is not None
        or any(segment in (".", "..") for segment in text.split("/"))
    )
