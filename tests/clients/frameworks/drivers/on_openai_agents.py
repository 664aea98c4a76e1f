"""An agent of the OpenAI Agents SDK."""

import driver
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from openai import AsyncOpenAI


async def main(plan):
    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(model="none", openai_client=AsyncOpenAI(base_url=plan["model"], api_key="none"))
    if driver.PROCESS:
        connection = MCPServerStdio(params=driver.PROCESS, name="shop", client_session_timeout_seconds=30)
    else:
        connection = MCPServerStreamableHttp(params={"url": plan["mcp"], "headers": driver.HEADERS}, name="shop")
    async with connection as server:
        agent = Agent(name="a", model=model, mcp_servers=[server], model_settings=ModelSettings())

        async def ask(prompt):
            return (await Runner.run(agent, prompt)).final_output

        await driver.answer(ask)


driver.run(main)
