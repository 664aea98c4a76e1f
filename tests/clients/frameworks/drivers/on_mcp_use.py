"""An agent of mcp-use."""

import driver
from langchain_openai import ChatOpenAI
from mcp_use import MCPAgent, MCPClient


async def main(plan):
    server = driver.PROCESS or {"url": plan["mcp"], "headers": driver.HEADERS}
    client = MCPClient.from_dict({"mcpServers": {"shop": server}})
    model = ChatOpenAI(model="none", base_url=plan["model"], api_key="none")
    agent = MCPAgent(llm=model, client=client, max_steps=5, memory_enabled=False)
    await agent.initialize()

    async def ask(prompt):
        return await agent.run(prompt)

    await driver.answer(ask)


driver.run(main)
