"""Signs that handlers keep state in memory, which workers do not share."""

import ast
import collections
import inspect
import os
import sys

from . import hints

_CONTAINERS = (dict, list, set, bytearray, collections.deque)

_CHANGES = frozenset(
    "add append appendleft clear discard extend extendleft insert pop popitem popleft remove setdefault subtract update".split()
)

# At most so many names are told.
MAX_TOLD = 5


def changed_names(functions, root):
    """The module-level names that functions in the handlers' modules change, as `app.py: ORDERS`."""
    found = []
    for module in _modules(functions):
        try:
            tree = ast.parse(inspect.getsource(module))
        except Exception:  # There is no source, or none that this Python reads.
            continue
        path = os.path.relpath(module.__file__, root)
        for name in sorted(_changed(tree)):
            value = vars(module).get(name)
            if isinstance(value, _CONTAINERS) or (name in _rebound(tree) and not callable(value)):
                found.append("%s: %s" % (path, name))
    return found if len(found) <= MAX_TOLD else [*found[:MAX_TOLD], "and %d more" % (len(found) - MAX_TOLD)]


def _modules(functions):
    seen = []
    for function in functions:
        name = getattr(hints.underlying(function), "__module__", None)
        module = sys.modules.get(name)
        if module is not None and getattr(module, "__file__", None) and module not in seen:
            seen.append(module)
    return seen


def _functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _rebound(tree):
    """The names that functions declare `global`."""
    return {
        name for function in _functions(tree) for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names
    }


def _changed(tree):
    names = _rebound(tree)
    for function in _functions(tree):
        local = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        arguments = function.args
        local.update(one.arg for one in (*arguments.args, *arguments.kwonlyargs, *getattr(arguments, "posonlyargs", ())))
        for node in ast.walk(function):
            target = None
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
                target = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
                target = node.func.value
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name) and target.id not in local:
                names.add(target.id)
    return names
