"""An agent of smolagents."""

import asyncio

import driver
from smolagents import MCPClient, OpenAIModel, ToolCallingAgent


async def main(plan):
    headers = {"Authorization": f"Bearer {plan['key']}"}
    model = OpenAIModel(model_id="none", api_base=plan["model"], api_key="none")
    with MCPClient({"url": plan["mcp"], "transport": "streamable-http", "headers": headers}, structured_output=False) as tools:
        agent = ToolCallingAgent(tools=tools, model=model, verbosity_level=0, max_steps=2)

        async def ask(prompt):
            return await asyncio.to_thread(agent.run, prompt)

        await driver.answer(ask)


asyncio.run(main(driver.PLAN))
