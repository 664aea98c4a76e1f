"""Carries out a plan of steps with the official Python SDK 2.x, one JSON line per outcome.

``drive.py PLAN.json``. What a plan and an outcome look like is said in ../plan.md;
whether an outcome is right is decided elsewhere, alike for every client.
"""

import asyncio
import base64
import json
import ssl
import sys
from contextlib import AsyncExitStack

import httpx2
import mcp.client.session
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from steps import Heard, User, beside, until
from mcp_types import ElicitResult, PromptReference, ResourceTemplateReference
from tasks import Tasks

# The revision is negotiated: a modern server must be found to be one.
MODES = {"legacy": "legacy", "modern": "auto"}


LOGS = []
HEARD = Heard()


async def log(message):
    LOGS.append([message.level, message.logger, message.data])


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
        page = await fetch(cursor=cursor)
        found += [plain(item) for item in getattr(page, field)]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def carry_out(client, tasks, user, step):
    match step["do"]:
        case "beside":
            return await beside(step)
        case "tools":
            return {"tools": await every_page(client.list_tools, "tools")}
        case "resources":
            return {"resources": await every_page(client.list_resources, "resources")}
        case "read":
            read = await client.read_resource(step["uri"])
            return {
                "contents": [
                    {"uri": str(part.uri), "mimeType": part.mime_type, "base64": content_bytes(part)}
                    for part in read.contents
                ]
            }
        case "templates":
            return {"templates": await every_page(client.list_resource_templates, "resource_templates")}
        case "told":
            return await HEARD.told()
        case "prompts":
            return {"prompts": await every_page(client.list_prompts, "prompts")}
        case "prompt":
            filled = await client.get_prompt(step["prompt"], step["arguments"])
            return {"messages": [plain(message) for message in filled.messages]}
        case "complete":
            if "template" in step:
                reference = ResourceTemplateReference(type="ref/resource", uri=step["template"])
            else:
                reference = PromptReference(type="ref/prompt", name=step["prompt"])
            completed = await client.complete(reference, {"name": step["argument"], "value": step["value"]})
            return {"values": completed.completion.values}
        case "call":
            LOGS.clear()
            progress = []

            async def on_progress(done, total, message):
                progress.append([done, total, message])

            result = await client.call_tool(
                step["tool"],
                step["arguments"],
                progress_callback=on_progress if step.get("progress") else None,
                meta=step.get("meta"),
            )
            texts = [part.text for part in result.content if part.type == "text"]
            return {
                "isError": bool(result.is_error),
                "text": "\n".join(texts),
                "structured": result.structured_content,
                "told": (result.meta or {}).get("io.owlclaw/error"),
                "progress": progress,
                "pictures": [
                    {"mimeType": part.mime_type, "base64": part.data} for part in result.content if part.type == "image"
                ],
                "logs": list(LOGS),
            }
    if tasks is not None:
        return await tasks.carry_out(client, step)
    raise ValueError(f"unknown step {step}")


async def complain(message):
    # What is no message at all, a stray line on standard output for example, comes as an exception.
    if isinstance(message, Exception):
        say({"complaint": repr(message)[:500]})
    notification = getattr(message, "root", message)
    if getattr(notification, "method", None) == "notifications/resources/updated":
        HEARD.hear(notification.params.uri)


async def subscribe(client, streams, step):
    """By the method of the era. What is told on a stream of its own is listened to in a task of its own."""
    if client.protocol_version < "2026-07-28":
        await client.subscribe_resource(step["uri"])
        return {}
    stream = await streams.enter_async_context(client.listen(resource_subscriptions=[step["uri"]]))

    async def listen():
        async for event in stream:
            HEARD.hear(event.uri)

    listening = asyncio.create_task(listen())
    streams.callback(listening.cancel)
    return {}


async def run(plan):
    if plan["transport"] == "stdio":
        command, *arguments = plan["command"]
        server = stdio_client(StdioServerParameters(command=command, args=arguments, env=plan["env"], cwd=plan["cwd"]))
    else:
        context = ssl.create_default_context()
        if "certificate" in plan:
            context.load_cert_chain(plan["certificate"])
        http = httpx2.AsyncClient(headers=plan["headers"], timeout=plan["timeout"], verify=context)
        server = streamable_http_client(plan["url"], http_client=http)
    mode = MODES[plan["era"]]
    options = {"read_timeout_seconds": plan["timeout"], "message_handler": complain}
    tasks = Tasks(plan) if "answers" in plan else None
    if tasks is not None:
        options |= {"extensions": [tasks], "elicitation_callback": tasks.answer}
    user = User(plan, ElicitResult)
    if "confirms" in plan:
        options |= {"elicitation_callback": user.answer, "logging_callback": log}
    if "revision" in plan and plan["era"] == "legacy":
        mcp.client.session.LATEST_HANDSHAKE_VERSION = plan["revision"]
    async with Client(server, mode=mode, **options) as client:
        say({"connected": client.protocol_version})
        async with AsyncExitStack() as streams:
            for step in plan["steps"]:
                try:
                    if step["do"] == "subscribe":
                        # Not in a task of its own: its stream is closed in this one.
                        outcome = await subscribe(client, streams, step)
                    else:
                        carried = until(step, lambda: carry_out(client, tasks, user, step))
                        outcome = await asyncio.wait_for(carried, plan["timeout"])
                except MCPError as error:
                    outcome = {"error": {"code": error.code, "message": error.message, "data": error.data}}
                say({"id": step["id"], **outcome, **user.asked()})
    say({"closed": True})


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        asyncio.run(run(json.load(file)))
