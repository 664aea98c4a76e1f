"""The frame of all drivers: prompts on standard input, a line of JSON for each on standard output."""

import asyncio
import json
import os
import sys
import traceback

PLAN = json.loads(sys.argv[1])
# The server is started by the framework, as `command`, `args` and `env` say, or reached at PLAN["mcp"].
PROCESS = PLAN.get("process")
HEADERS = {"Authorization": f"Bearer {PLAN['key']}"}
# Frameworks print what they like.
_TOLD = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def _tell(what):
    print(json.dumps(what), file=_TOLD, flush=True)


def progressed(done, total, message):
    """Tells what the framework showed of a call's progress."""
    _tell({"progress": [done, total, message]})


async def answer(ask, shows_progress=False, is_slow=False):
    """Puts each prompt to the agent, and tells what it said or how it ended."""
    _tell({"ready": True, "shows_progress": shows_progress, "is_slow": is_slow})
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            _tell({"said": str(await ask(json.loads(line)))})
        except BaseException as error:  # noqa: BLE001
            _tell({"raised": f"{type(error).__name__}: {error}"})


def run(main):
    """Runs a driver, and tells why it could not begin."""
    try:
        asyncio.run(main(PLAN))
    except BaseException as error:  # noqa: BLE001
        _tell({"failed": "".join(traceback.format_exception_only(error)) + "".join(traceback.format_exception(error))[-4000:]})
        raise
