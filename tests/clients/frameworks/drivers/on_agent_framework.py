"""An agent of Microsoft's Agent Framework."""

import driver
from agent_framework import Agent, MCPStdioTool, MCPStreamableHTTPTool
from agent_framework.openai import OpenAIChatCompletionClient


async def main(plan):
    client = OpenAIChatCompletionClient(
        model="none",
        base_url=plan["model"],
        api_key="none",
        # Else the model reads of refusals and failures that there was one, and not why.
        function_invocation_configuration={"include_detailed_errors": True},
    )
    if driver.PROCESS:
        server = MCPStdioTool(name="shop", **driver.PROCESS)
    else:
        server = MCPStreamableHTTPTool(name="shop", url=plan["mcp"], static_headers=driver.HEADERS)
    async with server, Agent(client=client, tools=[server]) as agent:

        async def ask(prompt):
            return (await agent.run(prompt)).text

        await driver.answer(ask)


driver.run(main)
