"""An agent of Agno."""

import driver
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.mcp import MCPTools
from agno.tools.mcp.params import StreamableHTTPClientParams
from mcp import StdioServerParameters


async def main(plan):
    if driver.PROCESS:
        transport, parameters = "stdio", StdioServerParameters(**driver.PROCESS)
    else:
        transport, parameters = "streamable-http", StreamableHTTPClientParams(url=plan["mcp"], headers=driver.HEADERS)
    async with MCPTools(transport=transport, server_params=parameters) as tools:
        agent = Agent(model=OpenAIChat(id="none", base_url=plan["model"], api_key="none"), tools=[tools], telemetry=False)

        async def ask(prompt):
            return (await agent.arun(prompt)).content

        await driver.answer(ask)


driver.run(main)
