"""What a process says about itself, and about its application once it has loaded it, or could not."""

import os
import socket
import sys
import sysconfig
import time
import traceback

import owlclaw_worker

from . import around, describe, hints, load, module_state, offers, protocol, threads
from .call import Handler

# At most so many files are watched for changes.
MAX_FILES = 4096

# Directories of installed packages, which do not change while one works on an application.
_INSTALLED = ("site-packages", "dist-packages")


def connect(path, nonce, **members):
    """A connection to the server, which has been told who is there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    frame = {"type": "hello", "protocol": protocol.PROTOCOL, "nonce": nonce, "pid": os.getpid(), **members}
    connection.sendall(protocol.encode_frame(frame))
    return connection


def ready(application, root, started, cannot_fork=()):
    """The `ready` frame, and the handlers by name."""
    handlers = {name: Handler(name, function) for name, function in application.handlers().items()}
    warnings = list(application.warnings)
    uses_context = _uses_context(root)
    tools = [describe.describe(handler, root, warnings, uses_context) for handler in handlers.values()]
    # A handler whose validators cannot be run is not called at all.
    handlers = {("call", name): handler for name, handler in handlers.items() if not handler.signature.refusals}
    offered, others = offers.ready(offers.of(application.app), root, warnings, describe.source, uses_context)
    handlers.update(others)
    middleware = offers.of(application.app).middleware
    for (kind, name), handler in handlers.items() if middleware else ():
        handler.chain = around.chain(kind, name, middleware)
    warnings.extend(getattr(application.app, "_notes", ()))
    warnings.extend(offers.of(application.app).notes)
    found = files(root)
    application.one_thread = threads.bound(module for module in list(sys.modules.values()) if _file(module) in found)
    frame = {
        "type": "ready",
        "app": application.name,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "owlclaw": application.owlclaw,
        "import_ms": int((time.monotonic() - started) * 1000),
        "tools": tools,
        **offered,
        "states": _states(application.states()),
        "skills": application.skills(),
        "warnings": warnings,
        "governance": application.governance,
        "changed_names": module_state.changed_names([handler.function for handler in handlers.values()], root),
        "cannot_fork": list(cannot_fork),
        "one_thread": application.one_thread,
        "files": found,
    }
    return protocol.encode_frame(frame), handlers


def _uses_context(root):
    """Tell whether a module of the application can ask for the context of a call without a parameter."""
    found = files(root)
    for module in list(sys.modules.values()):
        if _file(module) in found:
            for value in list(vars(module).values()):
                if value is owlclaw_worker or value is owlclaw_worker.get_context:
                    return True
    return False


def _file(module):
    path = getattr(module, "__file__", None)
    return os.path.abspath(path) if isinstance(path, str) else None


def _states(providers):
    asynchronous = {str(name): hints.is_async(provider) for name, provider in providers.items()}
    return [{"name": name, "async": asynchronous[name]} for name in sorted(asynchronous)]


def fatal(error, root=None):
    """The `fatal` frame. Its files are what to change to mend it."""
    is_told = isinstance(error, (load.LoadError, offers.LifespanError))
    message = str(error) if is_told else "%s: %s" % (type(error).__name__, error)
    # Another one may have what is missing: syntax, and what packages are made of.
    message += _with_what(message, error)
    return protocol.encode_frame(
        {
            "type": "fatal",
            "message": protocol.shortened(message, protocol.MAX_MESSAGE),
            "traceback": protocol.user_traceback(error),
            "files": files(root, _files_of_error(error)) if root else [],
        }
    )


def _with_what(message, error):
    """What an author has to know of a failure besides: with which interpreter, and what `owlclaw` is there."""
    package = getattr(sys.modules.get("owlclaw"), "__file__", None)
    is_stand_in = package is not None and "owlclaw_stand_in" in package
    owlclaw = "the stand-in for it that is part of the server" if is_stand_in else package or "not found"
    missing = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else None
    text = ""
    if missing == "fastmcp":
        text = "; an application written for FastMCP runs with `from owlclaw_worker import FastMCP`"
    if not (sys.executable in message and "stand-in" in message):
        text += " (Python %d.%d.%d, %s; the package owlclaw is %s)" % (*sys.version_info[:3], sys.executable, owlclaw)
    if is_stand_in and missing == "owlclaw":
        text += "; the stand-in registers handlers, states and runnables, and has nothing else: install owlclaw for this interpreter"
    return text


def files(root, more=()):
    """The source files below `root` of the modules that are loaded, without those of installed packages."""
    roots = {os.path.join(os.path.abspath(root), ""), os.path.join(os.path.realpath(root), "")}
    library = os.path.join(sysconfig.get_path("stdlib"), "")
    candidates = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    candidates.update(more)
    found = []
    for path in candidates:
        if not isinstance(path, str):
            continue
        path = os.path.abspath(path)
        if not path.startswith(tuple(roots)) or path.startswith((library, protocol.OWN_DIRECTORY)):
            continue
        if not any(part in _INSTALLED for part in path.split(os.sep)) and os.path.isfile(path):
            found.append(path)
    return sorted(found)[:MAX_FILES]


def _files_of_error(error):
    """The files that took part in an exception: a module that fails to load is not kept."""
    found = set()
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        found.update(frame.filename for frame in traceback.extract_tb(error.__traceback__))
        found.add(getattr(error, "filename", None))  # of a SyntaxError
        error = error.__cause__ or error.__context__
    return found
