"""An agent of Google's ADK, with a model over LiteLLM."""

import driver
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams, StreamableHTTPConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from google.genai import types
from mcp import StdioServerParameters


async def progressed(done, total, message):
    driver.progressed(done, total, message)


async def main(plan):
    model = LiteLlm(model="openai/none", api_base=plan["model"], api_key="none")
    if driver.PROCESS:
        server = StdioConnectionParams(server_params=StdioServerParameters(**driver.PROCESS), timeout=30)
    else:
        server = StreamableHTTPConnectionParams(url=plan["mcp"], headers=driver.HEADERS)
    tools = McpToolset(connection_params=server, progress_callback=progressed)
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=model, tools=[tools]), app_name="shop")

    async def ask(prompt):
        session = await runner.session_service.create_session(app_name="shop", user_id="u")
        content = types.Content(role="user", parts=[types.Part(text=prompt)])
        said = ""
        async for event in runner.run_async(user_id="u", session_id=session.id, new_message=content):
            if event.is_final_response() and event.content:
                said = event.content.parts[0].text
        return said

    await driver.answer(ask, shows_progress=True)


driver.run(main)
