"""What language models cost, when handlers ask them by way of OwlClaw.

All of OwlClaw's calls go through one function of `owlclaw.integrations.llm`. It is wrapped as soon as
something imports that module, which is never imported from here: it takes seconds.
"""

import functools
import importlib.abc
import inspect
import logging
import sys

import owlclaw_worker

MODULE = "owlclaw.integrations.llm"

FUNCTIONS = ("acompletion", "completion")

logger = logging.getLogger(__name__)


def watch():
    """Wrap the functions when the module is imported."""
    if MODULE in sys.modules:
        _wrap(sys.modules[MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find the module, and has its functions wrapped once it has run."""

    def find_spec(self, fullname, path=None, target=None):
        """The spec that another finder has for our module; nothing for any other."""
        if fullname != MODULE:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find and finder is not self else None
            if spec is not None:
                _wrap_after(spec.loader)
                return spec
        return None


def _wrap_after(loader):
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module):
        execute(module)
        _wrap(module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        logger.warning("costs of %s are not picked up: its %s cannot be changed", MODULE, type(loader).__name__)


def _wrap(module):
    for name in FUNCTIONS:
        function = getattr(module, name, None)
        if callable(function) and not hasattr(function, "_owlclaw_worker_metered"):
            metered = _metered(module, function)
            metered._owlclaw_worker_metered = True
            setattr(module, name, metered)


def _metered(module, function):
    async def later(awaitable, arguments, keywords):
        response = await awaitable
        _report(module, response, arguments, keywords)
        return response

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def metered(*arguments, **keywords):
            return await later(function(*arguments, **keywords), arguments, keywords)

    else:

        @functools.wraps(function)
        def metered(*arguments, **keywords):
            response = function(*arguments, **keywords)
            if inspect.isawaitable(response):
                return later(response, arguments, keywords)
            _report(module, response, arguments, keywords)
            return response

    return metered


def _report(module, response, arguments, keywords):
    # OwlClaw answers from a table then, and nobody sends a bill.
    if owlclaw_worker._current_call.get() is None or getattr(module, "_mock_config", None) is not None:
        return
    try:
        model = keywords.get("model") or (arguments[0] if arguments else None) or getattr(response, "model", None)
        model = model if isinstance(model, str) else ""
        extract = getattr(module, "extract_cost_info", None)
        if extract is not None:
            info = extract(response, model=model)
            amount = owlclaw_worker._amount(info.total_cost)
            tokens_in, tokens_out = info.prompt_tokens, info.completion_tokens
        else:
            amount = None
            tokens_in, tokens_out = _usage(response)
        if tokens_in or tokens_out:
            owlclaw_worker._cost(amount, model or None, tokens_in, tokens_out)
    except Exception:  # What a call costs is never a reason for it to fail.
        logger.warning("the cost of a language model's answer could not be read", exc_info=True)


def _usage(response):
    usage = response.get("usage") if isinstance(response, dict) else getattr(response, "usage", None)
    members = usage if isinstance(usage, dict) else vars(usage) if hasattr(usage, "__dict__") else {}
    return int(members.get("prompt_tokens") or 0), int(members.get("completion_tokens") or 0)
