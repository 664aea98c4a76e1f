"""An agent of CrewAI, with `MCPServerAdapter` of its tools."""

import asyncio

import driver
from crewai import LLM, Agent
from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters


async def main(plan):
    model = LLM(model="openai/none", base_url=plan["model"], api_key="none")
    server = {"url": plan["mcp"], "transport": "streamable-http", "headers": driver.HEADERS}
    with MCPServerAdapter(StdioServerParameters(**driver.PROCESS) if driver.PROCESS else server) as tools:
        agent = Agent(role="clerk", goal="answer", backstory="none", llm=model, tools=list(tools))

        async def ask(prompt):
            return (await asyncio.to_thread(agent.kickoff, prompt)).raw

        await driver.answer(ask)


driver.run(main)
