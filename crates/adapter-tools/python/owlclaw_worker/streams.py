"""Results that come in parts: generators, whose items are progress while they come, and a list at the end."""

import types

import owlclaw_worker

from . import protocol

# At most so many items make a list.
MAX_ITEMS = 100_000

# At most so much of an item is told as progress.
_MAX_TOLD = 1000


def collected(value):
    """`value`, or what it yields: a list, or an awaitable of one."""
    if type(value) is types.GeneratorType:
        return _collect(value)
    if type(value) is types.AsyncGeneratorType:
        return _collect_later(value)
    return value


def _collect(generator):
    items = []
    try:
        for item in generator:
            _take(items, item)
    finally:
        generator.close()
    return items


async def _collect_later(generator):
    items = []
    try:
        async for item in generator:
            _take(items, item)
    finally:
        await generator.aclose()
    return items


def _take(items, item):
    if len(items) == MAX_ITEMS:
        raise OverflowError("the generator has more than %d items" % MAX_ITEMS)
    items.append(item)
    try:
        told = protocol.as_text(item)["text"]
    except Exception:  # Such as a picture.
        told = None
    owlclaw_worker.progress(len(items), message=told and protocol.shortened(told, _MAX_TOLD))
