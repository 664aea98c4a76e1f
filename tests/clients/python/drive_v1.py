"""Carries out a plan of steps with the official Python SDK 1.x, one JSON line per outcome.

``drive_v1.py PLAN.json``; see ../plan.md. Also speaks HTTP with SSE, the transport of 2024-11-05,
and WebSocket.
"""

import asyncio
import base64
import functools
import json
import ssl
import sys
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
import mcp.client.websocket
import mcp.types
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import ElicitResult, ResourceTemplateReference
from pydantic import AnyUrl
from steps import Heard, User, beside, until
from tasks_v1 import Tasks

HEARD = Heard()


def say(outcome):
    print(json.dumps(outcome, ensure_ascii=True), flush=True)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def content_bytes(part):
    text = getattr(part, "text", None)
    return base64.b64encode(text.encode()).decode() if text is not None else part.blob


async def every_page(fetch, field):
    found, cursor = [], None
    while True:
        page = await fetch(cursor)
        found += [plain(item) for item in getattr(page, field)]
        cursor = page.nextCursor
        if cursor is None:
            return found


async def carry_out(session, tasks, user, step):
    match step["do"]:
        case "beside":
            return await beside(step)
        case "tools":
            return {"tools": await every_page(session.list_tools, "tools")}
        case "resources":
            return {"resources": await every_page(session.list_resources, "resources")}
        case "read":
            read = await session.read_resource(AnyUrl(step["uri"]))
            return {
                "contents": [
                    {"uri": str(part.uri), "mimeType": part.mimeType, "base64": content_bytes(part)}
                    for part in read.contents
                ]
            }
        case "templates":
            return {"templates": await every_page(session.list_resource_templates, "resourceTemplates")}
        case "subscribe":
            await session.subscribe_resource(AnyUrl(step["uri"]))
            return {}
        case "told":
            return await HEARD.told()
        case "complete":
            reference = ResourceTemplateReference(type="ref/resource", uri=step["template"])
            completed = await session.complete(reference, {"name": step["argument"], "value": step["value"]})
            return {"values": completed.completion.values}
        case "prompt":
            filled = await session.get_prompt(step["prompt"], step["arguments"])
            return {"messages": [message.model_dump(mode="json", exclude_none=True) for message in filled.messages]}
        case "call":
            progress = []

            async def on_progress(done, total, message):
                progress.append([done, total, message])

            result = await session.call_tool(
                step["tool"],
                step["arguments"],
                progress_callback=on_progress if step.get("progress") else None,
                meta=step.get("meta"),
            )
            texts = [part.text for part in result.content if part.type == "text"]
            return {
                "isError": bool(result.isError),
                "text": "\n".join(texts),
                "structured": result.structuredContent,
                "told": (result.meta or {}).get("io.owlclaw/error"),
                "progress": progress,
            }
    if tasks is not None:
        return await tasks.carry_out(session, step)
    raise ValueError(f"unknown step {step}")


@asynccontextmanager
async def streams(plan):
    if plan["transport"] == "stdio":
        command, *arguments = plan["command"]
        parameters = StdioServerParameters(command=command, args=arguments, env=plan["env"], cwd=plan["cwd"])
        async with stdio_client(parameters) as (read, write):
            yield read, write
    elif plan["transport"] == "websocket":
        # It knows no headers, and what it opens connections with does.
        connect = functools.partial(mcp.client.websocket.ws_connect, additional_headers=plan["headers"])
        mcp.client.websocket.ws_connect = connect
        async with mcp.client.websocket.websocket_client(plan["url"]) as (read, write):
            yield read, write
    elif plan["transport"] == "sse":
        async with sse_client(plan["url"], headers=plan["headers"]) as (read, write):
            yield read, write
    else:
        options = {"httpx_client_factory": with_certificate(plan["certificate"])} if "certificate" in plan else {}
        async with streamablehttp_client(plan["url"], headers=plan["headers"], **options) as (read, write, _session_id):
            yield read, write


def with_certificate(path):
    context = ssl.create_default_context()
    context.load_cert_chain(path)

    def client(headers=None, timeout=None, auth=None):
        return httpx.AsyncClient(headers=headers, timeout=timeout, auth=auth, verify=context)

    return client


async def complain(message):
    # What is no message at all, a stray line on standard output for example, comes as an exception.
    if isinstance(message, Exception):
        say({"complaint": repr(message)[:500]})
    notification = getattr(message, "root", message)
    if getattr(notification, "method", None) == "notifications/resources/updated":
        HEARD.hear(notification.params.uri)


async def run(plan):
    timeout = timedelta(seconds=plan["timeout"])
    tasks = Tasks(plan) if "answers" in plan else None
    user = User(plan, ElicitResult)
    mcp.types.LATEST_PROTOCOL_VERSION = plan.get("revision", mcp.types.LATEST_PROTOCOL_VERSION)
    async with (
        streams(plan) as (read, write),
        ClientSession(
            read,
            write,
            timeout,
            elicitation_callback=user.answer if "confirms" in plan else tasks and tasks.answer,
            message_handler=complain,
        ) as session,
    ):
        initialized = await session.initialize()
        say({"connected": initialized.protocolVersion})
        for step in plan["steps"]:
            try:
                carried = until(step, lambda: carry_out(session, tasks, user, step))
                outcome = await asyncio.wait_for(carried, plan["timeout"])
            except McpError as failure:
                error = failure.error
                outcome = {"error": {"code": error.code, "message": error.message, "data": error.data}}
            say({"id": step["id"], **outcome, **user.asked()})
    say({"closed": True})


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        asyncio.run(run(json.load(file)))
