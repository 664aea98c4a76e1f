"""An agent of AutoGen."""

import asyncio

import driver
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StreamableHttpServerParams


async def main(plan):
    headers = {"Authorization": f"Bearer {plan['key']}"}
    information = {
        "vision": False, "function_calling": True, "json_output": False, "family": "unknown", "structured_output": False,
    }
    model = OpenAIChatCompletionClient(
        model="none", base_url=plan["model"], api_key="none", model_info=information
    )
    async with McpWorkbench(StreamableHttpServerParams(url=plan["mcp"], headers=headers)) as workbench:

        async def ask(prompt):
            agent = AssistantAgent("a", model, workbench=workbench, reflect_on_tool_use=True)
            return (await agent.run(task=prompt)).messages[-1].content

        await driver.answer(ask)


asyncio.run(main(driver.PLAN))
