"""An agent of Pydantic AI."""

import driver
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def progressed(done, total, message):
    driver.progressed(done, total, message)


async def main(plan):
    if driver.PROCESS:
        server = MCPToolset(StdioTransport(**driver.PROCESS), progress_handler=progressed, init_timeout=30)
    else:
        server = MCPToolset(plan["mcp"], headers=driver.HEADERS, progress_handler=progressed)
    model = OpenAIChatModel("none", provider=OpenAIProvider(base_url=plan["model"], api_key="none"))
    agent = Agent(model, toolsets=[server])

    async def ask(prompt):
        async with agent:
            return (await agent.run(prompt)).output

    await driver.answer(ask, shows_progress=True)


driver.run(main)
