"""An agent of LangChain on LangGraph, with `langchain-mcp-adapters`."""

import asyncio

import driver
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI


async def main(plan):
    headers = {"Authorization": f"Bearer {plan['key']}"}
    client = MultiServerMCPClient({"shop": {"transport": "streamable_http", "url": plan["mcp"], "headers": headers}})
    model = ChatOpenAI(model="none", base_url=plan["model"], api_key="none")
    agent = create_agent(model, await client.get_tools())

    async def ask(prompt):
        answer = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]})
        return answer["messages"][-1].content

    await driver.answer(ask)


asyncio.run(main(driver.PLAN))
