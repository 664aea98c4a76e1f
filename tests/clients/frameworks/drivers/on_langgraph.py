"""An agent of LangChain on LangGraph, with `langchain-mcp-adapters`."""

import driver
from langchain.agents import create_agent
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI


async def progressed(done, total, message, context):
    driver.progressed(done, total, message)


async def main(plan):
    if driver.PROCESS:
        server = {"transport": "stdio", **driver.PROCESS}
    else:
        server = {"transport": "streamable_http", "url": plan["mcp"], "headers": driver.HEADERS}
    client = MultiServerMCPClient({"shop": server}, callbacks=Callbacks(on_progress=progressed))
    model = ChatOpenAI(model="none", base_url=plan["model"], api_key="none")
    agent = create_agent(model, await client.get_tools())

    async def ask(prompt):
        answer = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]})
        return answer["messages"][-1].content

    await driver.answer(ask, shows_progress=True)


driver.run(main)
