"""An agent of CrewAI, with `MCPServerAdapter` of its tools."""

import asyncio

import driver
from crewai import LLM, Agent
from crewai_tools import MCPServerAdapter


async def main(plan):
    headers = {"Authorization": f"Bearer {plan['key']}"}
    model = LLM(model="openai/none", base_url=plan["model"], api_key="none")
    with MCPServerAdapter({"url": plan["mcp"], "transport": "streamable-http", "headers": headers}) as tools:
        agent = Agent(role="clerk", goal="answer", backstory="none", llm=model, tools=list(tools))

        async def ask(prompt):
            return (await asyncio.to_thread(agent.kickoff, prompt)).raw

        await driver.answer(ask)


asyncio.run(main(driver.PLAN))
