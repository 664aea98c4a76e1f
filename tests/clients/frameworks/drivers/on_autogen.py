"""An agent of AutoGen."""

import driver
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams


async def main(plan):
    information = {
        "vision": False, "function_calling": True, "json_output": False, "family": "unknown", "structured_output": False,
    }
    model = OpenAIChatCompletionClient(
        model="none", base_url=plan["model"], api_key="none", model_info=information
    )
    if driver.PROCESS:
        server = StdioServerParams(**driver.PROCESS, read_timeout_seconds=30)
    else:
        server = StreamableHttpServerParams(url=plan["mcp"], headers=driver.HEADERS)
    async with McpWorkbench(server) as workbench:

        async def ask(prompt):
            agent = AssistantAgent("a", model, workbench=workbench, reflect_on_tool_use=True)
            return (await agent.run(task=prompt)).messages[-1].content

        await driver.answer(ask)


driver.run(main)
