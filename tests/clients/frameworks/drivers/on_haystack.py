"""An agent of Haystack, with `mcp-haystack`."""

import asyncio

import driver
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, StreamableHttpServerInfo


async def main(plan):
    if driver.PROCESS:
        server = StdioServerInfo(**driver.PROCESS)
    else:
        server = StreamableHttpServerInfo(url=plan["mcp"], headers=driver.HEADERS)
    tools = MCPToolset(server, eager_connect=True)
    model = OpenAIChatGenerator(model="none", api_base_url=plan["model"], api_key=Secret.from_token("none"))
    agent = Agent(chat_generator=model, tools=tools, max_agent_steps=5)

    async def ask(prompt):
        return (await asyncio.to_thread(agent.run, messages=[ChatMessage.from_user(prompt)]))["last_message"].text

    await driver.answer(ask)


driver.run(main)
