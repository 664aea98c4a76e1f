"""An agent of Pydantic AI."""

import asyncio

import driver
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main(plan):
    headers = {"Authorization": f"Bearer {plan['key']}"}
    server = MCPToolset(plan["mcp"], headers=headers)
    model = OpenAIChatModel("none", provider=OpenAIProvider(base_url=plan["model"], api_key="none"))
    agent = Agent(model, toolsets=[server])

    async def ask(prompt):
        async with agent:
            return (await agent.run(prompt)).output

    await driver.answer(ask)


asyncio.run(main(driver.PLAN))
