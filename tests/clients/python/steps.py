"""What both generations of the SDK have in common: the person at the client, and what is done beside it."""

import asyncio


class User:
    """Answers questions as the plan says, and remembers what was asked during a step."""

    def __init__(self, plan, result):
        self._answers = plan.get("confirms")
        self._result = result
        self._asked = []

    async def answer(self, _context, question):
        self._asked.append(question.message)
        content = self._answers.get(question.message)
        return self._result(action="decline") if content is None else self._result(action="accept", content=content)

    def asked(self):
        asked, self._asked = self._asked, []
        return {} if self._answers is None else {"asked": asked}


class Heard:
    """Changes of resources that the client was told of."""

    def __init__(self):
        self._uris = []
        self._any = asyncio.Event()

    def hear(self, uri):
        self._uris.append(str(uri))
        self._any.set()

    async def told(self):
        """What was told since the last time, once there is any."""
        await self._any.wait()
        self._any.clear()
        told, self._uris = self._uris, []
        return {"told": told}


async def until(step, carry_out):
    """The outcome of a step, which is repeated until its result has what the step waits for."""
    while True:
        outcome = await carry_out()
        structured = outcome.get("structured") or {}
        if outcome.get("isError") or step.get("until", {}).items() <= structured.items():
            return outcome


async def beside(step):
    process = await asyncio.create_subprocess_exec(
        *step["command"],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return {"status": process.returncode, "output": output.decode(), "errors": errors.decode()}
