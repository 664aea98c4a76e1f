"""A loop around FastMCP's client, which has no agent: the model reads what the client returns or raises."""

import asyncio
import json
import urllib.request

import driver
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError


async def progressed(done, total, message):
    driver.progressed(done, total, message)


async def main(plan):
    if driver.PROCESS:
        transport = StdioTransport(**driver.PROCESS)
    else:
        transport = StreamableHttpTransport(plan["mcp"], headers=driver.HEADERS)

    async def outcome(client, call):
        try:
            result = await client.call_tool(call["name"], json.loads(call["arguments"]))
        except ToolError as error:
            return str(error)
        return "\n".join(getattr(block, "text", f"a block of {block.type}") for block in result.content)

    def said(messages, functions):
        body = json.dumps({"model": "none", "messages": messages, "tools": functions}).encode()
        request = urllib.request.Request(f"{plan['model']}/chat/completions", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["message"]

    async def ask(prompt):
        async with Client(transport, progress_handler=progressed) as client:
            functions = [
                {"type": "function", "function": {"name": it.name, "description": it.description, "parameters": it.input_schema}}
                for it in await client.list_tools()
            ]
            messages = [{"role": "user", "content": prompt}]
            while True:
                message = await asyncio.to_thread(said, messages, functions)
                messages.append(message)
                if not message.get("tool_calls"):
                    return message["content"]
                for call in message["tool_calls"]:
                    text = await outcome(client, call["function"])
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    await driver.answer(ask, shows_progress=True)


driver.run(main)
