"""The steps about tasks, with what the SDK 1.x has for those of 2025-11-25."""

import warnings

from mcp.types import CallToolResult, ElicitResult

OVER = ("completed", "failed", "cancelled")


class Tasks:
    def __init__(self, plan):
        self._answers = plan["answers"]
        self._asked = []

    async def answer(self, _context, question):
        self._asked.append(question.message)
        content = self._answers.get(question.message)
        return ElicitResult(action="decline") if content is None else ElicitResult(action="accept", content=content)

    async def carry_out(self, session, step):
        with warnings.catch_warnings():
            # Removed from the next generation, and what is tried here.
            warnings.simplefilter("ignore", DeprecationWarning)
            tasks = session.experimental
        match step["do"]:
            case "task":
                return await self._task(tasks, step)
            case "cancel":
                return await self._cancel(tasks, step)
            case "again":
                status = (await tasks.get_task(step["task"])).status
                return {"status": status, **(await _result(tasks, step["task"]) if status in OVER else {})}
            case "list":
                return {"tasks": await _every(tasks)}
        raise ValueError(f"unknown step {step}")

    async def _task(self, tasks, step):
        self._asked.clear()
        created = (await tasks.call_tool_as_task(step["tool"], step["arguments"], ttl=step["keep"])).task
        statuses, result = [created.status], None
        async for seen in tasks.poll_task(created.taskId):
            _note(statuses, seen.status)
            if seen.status == "input_required" and result is None:
                # What a task asks arrives while its result is waited for.
                result = await _result(tasks, created.taskId)
        result = result or await _result(tasks, created.taskId)
        return {"task": created.taskId, "keep": created.ttl, "statuses": statuses, "asked": list(self._asked), **result}

    async def _cancel(self, tasks, step):
        created = (await tasks.call_tool_as_task(step["tool"], step["arguments"], ttl=step["keep"])).task
        statuses = [(await tasks.get_task(created.taskId)).status]
        statuses.append((await tasks.cancel_task(created.taskId)).status)
        async for seen in tasks.poll_task(created.taskId):
            _note(statuses, seen.status)
        return {"statuses": statuses}


def _note(statuses, status):
    if status != statuses[-1]:
        statuses.append(status)


async def _result(tasks, id):
    result = await tasks.get_task_result(id, CallToolResult)
    texts = [part.text for part in result.content if part.type == "text"]
    return {
        "isError": bool(result.isError),
        "text": "\n".join(texts),
        "structured": result.structuredContent,
        "told": (result.meta or {}).get("io.owlclaw/error"),
    }


async def _every(tasks):
    found, cursor = [], None
    while True:
        page = await tasks.list_tasks(cursor)
        found += [{"task": task.taskId, "status": task.status} for task in page.tasks]
        cursor = page.nextCursor
        if cursor is None:
            return found
