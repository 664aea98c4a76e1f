"""The steps about tasks, as an extension of the SDK 2.x.

The SDK has a place for results that are tasks, and none of its own: that they are polled,
and what they ask answered, is done here.
"""

import asyncio
from typing import Any, Literal

from mcp import MCPError
from mcp.client.extension import ClientExtension, ResultClaim
from mcp_types import CallToolResult, ElicitResult, Request, Result
from pydantic import ConfigDict, Field

OVER = ("completed", "failed", "cancelled")


class Created(Result):
    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str
    ttl: int | None = Field(alias="ttlMs")
    interval: int | None = Field(alias="pollIntervalMs", default=None)


class Seen(Result):
    model_config = ConfigDict(extra="allow")

    status: str
    interval: int | None = Field(alias="pollIntervalMs", default=None)
    questions: dict[str, Any] = Field(alias="inputRequests", default_factory=dict)
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class AboutTask(Request[dict, str]):
    name_param = "taskId"


class Tasks(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, plan):
        self._answers = plan["answers"]
        self._asked = []
        self._cancels = False
        self._seen = None

    def claims(self):
        return [ResultClaim(result_type="task", model=Created, resolve=self._resolve)]

    async def answer(self, _context, question):
        return ElicitResult.model_validate(self._answer(question.message))

    def _answer(self, message):
        self._asked.append(message)
        content = self._answers.get(message)
        return {"action": "decline"} if content is None else {"action": "accept", "content": content}

    async def carry_out(self, client, step):
        match step["do"]:
            case "task" | "cancel":
                return await self._call(client, step)
            case "again":
                seen = await _get(client.session, step["task"])
                return {"status": seen.status, **(_shown(seen) if seen.status in OVER else {})}
        raise ValueError(f"unknown step {step}")

    async def _call(self, client, step):
        self._asked.clear()
        self._cancels = step["do"] == "cancel"
        self._seen = {"task": None, "statuses": []}
        try:
            result = await client.call_tool(step["tool"], step["arguments"])
        except MCPError as error:
            if self._seen["task"] is None:
                raise
            come = _refusal(error.code, error.message, error.data)
        except Cancelled:
            come = {"failure": "cancelled"}
        else:
            come = _call_result(result)
        return {**self._seen, "asked": list(self._asked), **come}

    async def _resolve(self, created, context):
        id, session = created.task_id, context.session
        statuses = [created.status]
        self._seen = {"task": id, "statuses": statuses, "keep": created.ttl}
        answered = set()
        interval = created.interval
        if self._cancels:
            await _send(session, "tasks/cancel", taskId=id)
        while True:
            seen = await _get(session, id)
            if seen.status != statuses[-1]:
                statuses.append(seen.status)
            match seen.status:
                case "completed":
                    return CallToolResult.model_validate(seen.result)
                case "failed":
                    raise MCPError(seen.error["code"], seen.error["message"], seen.error.get("data"))
                case "cancelled":
                    raise Cancelled
            questions = {key: question for key, question in seen.questions.items() if key not in answered}
            if questions:
                answers = {key: self._answer(question["params"]["message"]) for key, question in questions.items()}
                await _send(session, "tasks/update", taskId=id, inputResponses=answers)
                answered |= questions.keys()
            interval = seen.interval or interval
            await asyncio.sleep((interval or 1000) / 1000)


class Cancelled(Exception):
    pass


async def _send(session, method, result_type=Result, **params):
    return await session.send_request(AboutTask(method=method, params=params), result_type)


async def _get(session, id):
    return await _send(session, "tasks/get", Seen, taskId=id)


def _shown(seen):
    match seen.status:
        case "completed":
            return _call_result(CallToolResult.model_validate(seen.result))
        case "failed":
            return _refusal(seen.error["code"], seen.error["message"], seen.error.get("data"))
    return {"failure": seen.status}


def _refusal(code, message, data):
    return {"error": {"code": code, "message": message, "data": data}}


def _call_result(result):
    texts = [part.text for part in result.content if part.type == "text"]
    return {
        "isError": bool(result.is_error),
        "text": "\n".join(texts),
        "structured": result.structured_content,
        "told": (result.meta or {}).get("io.owlclaw/error"),
    }
