"""An agent of Agno."""

import asyncio

import driver
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.mcp import MCPTools
from agno.tools.mcp.params import StreamableHTTPClientParams


async def main(plan):
    headers = {"Authorization": f"Bearer {plan['key']}"}
    parameters = StreamableHTTPClientParams(url=plan["mcp"], headers=headers)
    async with MCPTools(transport="streamable-http", server_params=parameters) as tools:
        agent = Agent(model=OpenAIChat(id="none", base_url=plan["model"], api_key="none"), tools=[tools], telemetry=False)

        async def ask(prompt):
            return (await agent.arun(prompt)).content

        await driver.answer(ask)


asyncio.run(main(driver.PLAN))
