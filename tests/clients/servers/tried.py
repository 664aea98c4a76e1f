"""A small server by each of the Python SDKs: `tried.py KIND TRANSPORT [PORT]`.

KIND is mcp-1, mcp-2 or fastmcp, TRANSPORT is stdio, http, sse or, for mcp-1, websocket. With ISSUER in the environment
mcp-2 over http wants tokens of that issuer, with the scope `mcp`.
"""

import os
import sys
from typing import Annotated

import anyio
from pydantic import BaseModel

kind, transport = sys.argv[1:3]
port = int(sys.argv[3]) if len(sys.argv) > 3 else 0


def guarded(issuer: str | None, port: int) -> dict:
    """Settings of a server that believes the issuer's tokens for itself."""
    if not issuer:
        return {}
    import jwt
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings

    here = f"http://127.0.0.1:{port}/mcp"
    keys = jwt.PyJWKClient(f"{issuer}/jwks")

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            try:
                key = await anyio.to_thread.run_sync(keys.get_signing_key_from_jwt, token)
                it = jwt.decode(token, key, algorithms=["RS256"], audience=here, issuer=issuer)
            except jwt.PyJWTError:
                return None
            scopes = it.get("scope", "").split()
            return AccessToken(token=token, client_id=it["client_id"], scopes=scopes, expires_at=it["exp"], resource=here)

    settings = AuthSettings(
        issuer_url=issuer, resource_server_url=here, required_scopes=["mcp"], validate_token_resource=True
    )
    return {"auth": settings, "token_verifier": Verifier()}


if kind == "fastmcp":
    from fastmcp import Context, FastMCP

    from mcp_types import SamplingMessage, TextContent

    server = FastMCP("tried")
elif kind == "mcp-1":
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.types import SamplingMessage, TextContent

    server = FastMCP("tried", port=port)
else:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
    from mcp_types import CreateMessageResult, SamplingMessage, TextContent

    server = MCPServer("tried", **guarded(os.environ.get("ISSUER"), port))


SAY_IT = SamplingMessage(role="user", content=TextContent(type="text", text="Say it."))


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

    def say_it() -> Sample:
        return Sample([SAY_IT], max_tokens=10)

    @server.tool()
    async def sample(answer: Annotated[CreateMessageResult, Resolve(say_it)]) -> str:
        return f"sampled: {answer.content.text}"

    @server.tool()
    async def touch(ctx: Context) -> str:
        await ctx.notify_resource_updated("tried://note")
        return "touched"

else:

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", Sure)
        return f"sure: {answer.data.sure}" if answer.action == "accept" else answer.action

    @server.tool()
    async def sample(ctx: Context) -> str:
        answer = await ctx.session.create_message([SAY_IT], max_tokens=10)
        return f"sampled: {answer.content.text}"


@server.resource("tried://note")
def read_note() -> str:
    return "a note"


@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}."


if transport == "stdio":
    server.run(transport="stdio")
elif transport == "websocket":
    import uvicorn
    from mcp.server.websocket import websocket_server

    async def answer(scope, receive, send):
        async with websocket_server(scope, receive, send) as (reader, writer):
            inner = server._mcp_server
            await inner.run(reader, writer, inner.create_initialization_options())

    uvicorn.run(answer, port=port, lifespan="off", log_level="error")
else:
    names = {"http": "streamable-http", "sse": "sse"}
    os.environ["PORT"] = str(port)
    more = {} if kind == "mcp-1" else {"port": port}
    server.run(transport=names[transport], **more)
