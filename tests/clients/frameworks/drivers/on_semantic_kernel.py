"""An agent of Semantic Kernel."""

import driver
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin


async def main(plan):
    model = OpenAIChatCompletion(
        ai_model_id="none", async_client=AsyncOpenAI(base_url=plan["model"], api_key="none")
    )
    if driver.PROCESS:
        plugin = MCPStdioPlugin(name="shop", **driver.PROCESS)
    else:
        plugin = MCPStreamableHttpPlugin(name="shop", url=plan["mcp"], headers=driver.HEADERS)
    async with plugin:
        agent = ChatCompletionAgent(service=model, name="clerk", plugins=[plugin])

        async def ask(prompt):
            return (await agent.get_response(messages=prompt)).content

        await driver.answer(ask)


driver.run(main)
