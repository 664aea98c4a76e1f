"""Start of a worker, in the process that the launcher has forked."""

import asyncio
import atexit
import errno
import faulthandler
import gc
import os
import sys
import time
import traceback
import weakref

from . import event_loop, introduce, load, log_lines, offers, processes, serve


def run(settings, order, loop, loaded):
    """Run a worker to its end, and with it the process. `loaded` has handlers and states, if it was the launcher that loaded them."""
    status = 70
    # Whatever happens, this process shall not go on as a second launcher.
    try:
        status = _run(settings, order, loop, loaded)
        log_lines.end_all()
    except _NotWanted:
        status = 0
    except BaseException:
        report = "the worker cannot go on: %s" % traceback.format_exc()
        os.write(2, report.encode("utf-8", "replace"))
    finally:
        # Not a return: threads that the application left running must not hold the process up.
        os._exit(status)


class _NotWanted(Exception):
    """What the server had made for this worker is gone: it does not want it any more."""


def _run(settings, order, loop, loaded):
    processes.lead_group()
    processes.die_with(settings.launcher)
    _redirect(0, os.devnull, os.O_RDONLY)
    try:
        _redirect(1, order["stdout"], os.O_WRONLY)
        _redirect(2, order["stderr"], os.O_WRONLY)
    except OSError as error:
        # The server has removed the pipes, or reads them no more.
        if error.errno in (errno.ENOENT, errno.ENXIO):
            raise _NotWanted from None
        raise
    faulthandler.enable(file=2)
    _keep_for_the_launcher()
    loop = event_loop.renewed(loop)
    _reseed()
    try:
        connection = introduce.connect(settings.socket, order["nonce"], role="worker", worker=order["worker"])
    except (FileNotFoundError, ConnectionError):
        raise _NotWanted from None
    worker = serve.Worker(connection, loop, has_threads=1 < settings.threads)
    worker.start()
    started = time.monotonic()
    try:
        if settings.memory:
            processes.limit_memory(settings.memory)
        if loaded is None:
            os.chdir(settings.root)
            with processes.telling_where(settings.patience):
                application = load.load(settings.app, settings.root, loop.run_until_complete, settings.search)
            frame, handlers = introduce.ready(application, settings.root, started)
            loaded = handlers, application.states(), application.app
            if application.one_thread:
                worker.use_main_thread()
            asyncio.set_event_loop(loop)
            connection.sendall(frame)
            worker.install_signals()
            gc.collect()
            gc.freeze()
    except BaseException as error:  # SystemExit of an application that misses its settings included.
        connection.sendall(introduce.fatal(error, settings.root))
        return 1
    try:
        lifespan = offers.Lifespan(loaded[2], loop)
        lifespan.begin()
    except BaseException as error:
        connection.sendall(introduce.fatal(error, settings.root))
        return 1
    worker.application = loaded[2]
    worker.lifespan_state = lifespan.state
    connection.sendall(serve.SERVING)
    worker.serve(*loaded[:2])
    try:
        lifespan.end()
    except Exception as error:
        print("the lifespan did not end as it should: %s: %s" % (type(error).__name__, error), file=sys.stderr)
        traceback.print_exc()
    log_lines.end_all()
    atexit._run_exitfuncs()
    return 0


def _redirect(descriptor, path, flags):
    # Without O_NONBLOCK, opening a pipe that the server does not read any more would wait for ever.
    opened = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(opened, True)
    if opened == descriptor:
        os.set_inheritable(descriptor, True)
    else:
        os.dup2(opened, descriptor)
        os.close(opened)


def _keep_for_the_launcher():
    """Temporary directories that were made during the import are removed once, at the launcher's end."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False


def _reseed():
    """Workers shall not draw the same numbers. `random` sees to itself; `secrets` and `uuid` ask the kernel."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        try:
            numpy_random.seed()
        except Exception:
            traceback.print_exc()
