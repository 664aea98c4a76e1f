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


async def beside(step):
    process = await asyncio.create_subprocess_exec(
        *step["command"],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return {"status": process.returncode, "output": output.decode(), "errors": errors.decode()}
