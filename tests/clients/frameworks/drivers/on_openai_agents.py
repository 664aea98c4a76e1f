"""An agent of the OpenAI Agents SDK."""

import asyncio

import driver
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI


async def main(plan):
    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(model="none", openai_client=AsyncOpenAI(base_url=plan["model"], api_key="none"))
    headers = {"Authorization": f"Bearer {plan['key']}"}
    async with MCPServerStreamableHttp(params={"url": plan["mcp"], "headers": headers}, name="shop") as server:
        agent = Agent(name="a", model=model, mcp_servers=[server], model_settings=ModelSettings())

        async def ask(prompt):
            return (await Runner.run(agent, prompt)).final_output

        await driver.answer(ask)


asyncio.run(main(driver.PLAN))
