"""An agent of smolagents."""

import asyncio

import driver
from mcp import StdioServerParameters
from smolagents import MCPClient, OpenAIModel, ToolCallingAgent


async def main(plan):
    model = OpenAIModel(model_id="none", api_base=plan["model"], api_key="none")
    server = {"url": plan["mcp"], "transport": "streamable-http", "headers": driver.HEADERS}
    server = StdioServerParameters(**driver.PROCESS) if driver.PROCESS else server
    with MCPClient(server, structured_output=False) as tools:
        agent = ToolCallingAgent(tools=tools, model=model, verbosity_level=0, max_steps=2)

        async def ask(prompt):
            return await asyncio.to_thread(agent.run, prompt)

        await driver.answer(ask)


driver.run(main)
