"""An agent of LlamaIndex."""

import driver
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


async def main(plan):
    model = OpenAILike(model="none", api_base=plan["model"], api_key="none", is_chat_model=True, is_function_calling_model=True)
    if driver.PROCESS:
        words = dict(driver.PROCESS)
        client = BasicMCPClient(words.pop("command"), **words)
    else:
        client = BasicMCPClient(plan["mcp"], headers=driver.HEADERS)
    tools = await McpToolSpec(client).to_tool_list_async()
    agent = FunctionAgent(tools=tools, llm=model)

    async def ask(prompt):
        return await agent.run(prompt)

    await driver.answer(ask)


driver.run(main)
