"""Rules that attributes of handlers state: those that are read, and words of rules where nothing reads them."""

import difflib
import inspect
import re

from . import protocol

# Attributes that are read, as keys of the `owlclaw:` block of a skill.
KNOWN = ("risk_level", "requires_confirmation", "constraints")

# Keys that are hardly ever anything but rules, as those of skills, with where a handler has them.
_PLACES = {
    "risk_level": "call it `risk_level`",
    "requires_confirmation": "call it `requires_confirmation`",
    "constraints": "call it `constraints`",
    "max_daily_calls": "write it in the attribute `constraints`, a dictionary, as `max_daily_calls`",
    "cooldown_seconds": "write it in the attribute `constraints`, a dictionary, as `cooldown_seconds`",
    "estimated_cost": "write it in the attribute `constraints`, a dictionary, as `estimated_cost`",
    "trading_hours_only": "write it in the attribute `constraints`, a dictionary, as `trading_hours_only`",
    "migration_weight": "write it below `owlclaw:` in the SKILL.md of the tool",
    "max_calls_per_day": "write it in the attribute `constraints`, a dictionary, as `max_daily_calls`",
    "max_calls_per_minute": "write it under `governance.tools` in the server's configuration",
    "max_cost_per_call": "write it under `governance.default_quota` in the server's configuration",
    "max_running": "write it under `governance.tools` in the server's configuration",
}

# How alike two names are from here on, in the letters alone.
_ALIKE = 0.85

_APPROVAL = re.compile(r"(?:^|[^a-z]|(?<=[a-z])(?=[A-Z]))(?i:approv|confirm|consent)")

_RISK_LEVELS = ("low", "medium", "high", "critical")


def _letters(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


_BY_LETTERS = {_letters(rule): rule for rule in _PLACES}


def _meant(name):
    """The rule that an attribute of this name was probably meant to state."""
    alike = difflib.get_close_matches(_letters(name), _BY_LETTERS, 1, _ALIKE)
    return _BY_LETTERS[alike[0]] if alike else None


def of_class(cls):
    """What a class says about its methods. Classes have attributes of these names, and of similar ones, for purposes of their
    own, so that only those count that can be nothing else, and nothing of what an object of the class keeps.
    """
    said = {}
    for name in KNOWN:
        try:
            value = protocol.to_plain(inspect.getattr_static(cls, name, None))
        except Exception:  # Attributes are the application's objects.
            continue
        if _FITS[name](value):
            said[name] = value
    return said


_FITS = {
    "risk_level": lambda value: isinstance(value, str) and value in _RISK_LEVELS,
    "requires_confirmation": lambda value: isinstance(value, bool),
    "constraints": lambda value: isinstance(value, dict) and any(isinstance(key, str) and _meant(key) for key in value),
}


def _says_yes(value):
    """Whether it says so, in whatever way: a flag, or the word or number for one."""
    if isinstance(value, str):
        return value.strip().lower() in ("yes", "true", "on", "y", "1", "always", "required")
    return isinstance(value, (bool, int)) and value == 1


def _attributes(layer):
    """Names and values of what an object and its class have, without running any code of theirs."""
    found = {}
    classes = () if inspect.isroutine(layer) else layer.__mro__ if isinstance(layer, type) else type(layer).__mro__
    for place in reversed([layer, *classes]):
        try:
            found.update(vars(place))
        except TypeError:
            pass
    return found.items()


def unread(layer):
    """Why a handler with these attributes must not be called: each states a rule that would not hold."""
    for name, value in _attributes(layer):
        if not isinstance(name, str) or name.startswith("__") or name in KNOWN or value is None:
            continue
        if inspect.isroutine(value) or isinstance(value, (type, classmethod, staticmethod)):
            continue
        rule = _meant(name)
        if rule is None and _says_yes(value) and _APPROVAL.search(name):
            rule = "requires_confirmation"
        if rule == "requires_confirmation" and value is False:
            continue
        if rule is not None and not (rule == "constraints" and not isinstance(value, dict)):
            yield "its attribute `%s` is a rule that would not hold: %s" % (name, _PLACES[rule])
