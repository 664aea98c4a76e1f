"""An agent of Strands."""

import driver
from mcp import StdioServerParameters, stdio_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient


async def progressed(done, total, message):
    driver.progressed(done, total, message)


async def main(plan):
    model = OpenAIModel(client_args={"base_url": plan["model"], "api_key": "none"}, model_id="none")
    if driver.PROCESS:
        where = {"transport_callable": lambda: stdio_client(StdioServerParameters(**driver.PROCESS))}
    else:
        where = {"url": plan["mcp"], "headers": driver.HEADERS}
    with MCPClient(**where, progress_callback=progressed) as client:
        agent = Agent(model=model, tools=client.list_tools_sync(), callback_handler=None)

        async def ask(prompt):
            return await agent.invoke_async(prompt)

        await driver.answer(ask, shows_progress=True)


driver.run(main)
