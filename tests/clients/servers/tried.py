"""A small server by each of the Python SDKs: `tried.py KIND TRANSPORT [PORT]`.

KIND is mcp-1, mcp-2 or fastmcp, TRANSPORT is stdio, http or sse.
"""

import os
import sys
from typing import Annotated

import anyio
from pydantic import BaseModel

kind, transport = sys.argv[1:3]
port = int(sys.argv[3]) if len(sys.argv) > 3 else 0

if kind == "fastmcp":
    from fastmcp import Context, FastMCP

    server = FastMCP("tried")
elif kind == "mcp-1":
    from mcp.server.fastmcp import Context, FastMCP

    server = FastMCP("tried", port=port)
else:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.resolve import Elicit, Resolve

    server = MCPServer("tried")


class Sure(BaseModel):
    sure: bool


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "counted"


@server.tool()
async def rest(mark: str) -> str:
    """Writes to a file that it began, and that it was cancelled."""
    note(mark, "begun")
    try:
        await anyio.sleep(600)
    except BaseException:
        note(mark, "cancelled")
        raise
    return "rested"


def note(mark: str, text: str) -> None:
    with open(mark, "a") as file:
        file.write(text + "\n")


if kind == "mcp-2":

    def is_sure() -> "Elicit[Sure]":
        return Elicit("Sure?", Sure)

    @server.tool()
    async def ask(answer: Annotated[Sure, Resolve(is_sure)]) -> str:
        return f"sure: {answer.sure}"

    @server.tool()
    async def touch(ctx: Context) -> str:
        await ctx.notify_resource_updated("tried://note")
        return "touched"

else:

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", Sure)
        return f"sure: {answer.data.sure}" if answer.action == "accept" else answer.action


@server.resource("tried://note")
def read_note() -> str:
    return "a note"


@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}."


if transport == "stdio":
    server.run(transport="stdio")
else:
    names = {"http": "streamable-http", "sse": "sse"}
    os.environ["PORT"] = str(port)
    more = {} if kind == "mcp-1" else {"port": port}
    server.run(transport=names[transport], **more)
