"""An agent of Strands."""

import asyncio

import driver
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient


async def progressed(done, total, message):
    driver.progressed(done, total, message)


async def main(plan):
    headers = {"Authorization": f"Bearer {plan['key']}"}
    model = OpenAIModel(client_args={"base_url": plan["model"], "api_key": "none"}, model_id="none")
    with MCPClient(url=plan["mcp"], headers=headers, progress_callback=progressed) as client:
        agent = Agent(model=model, tools=client.list_tools_sync(), callback_handler=None)

        async def ask(prompt):
            return await agent.invoke_async(prompt)

        await driver.answer(ask, shows_progress=True)


asyncio.run(main(driver.PLAN))
