"""Claude Code."""

import driver
import host


async def main(plan):
    host.written(".mcp.json", host.entry("claude-code"))
    host.written(".claude/settings.json", {"enableAllProjectMcpServers": True})
    variables = {
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": plan["origin"],
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # Else the model finds tools by a search, when there are many.
        "ENABLE_TOOL_SEARCH": "false",
    }
    program = [str(host.PACKAGES / "@anthropic-ai/claude-code-linux-x64/claude")]

    async def ask(prompt):
        words = ["--print", prompt, "--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__owlclaw"]
        return await host.said(*program, *words, **variables)

    await driver.answer(ask, is_slow=True)


driver.run(main)
