"""Gemini CLI."""

import json

import driver
import host


async def main(plan):
    settings = json.loads(host.entry("gemini"))
    settings |= {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
    host.written(".gemini/settings.json", settings)
    variables = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": plan["origin"], "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    program = ["node", str(host.PACKAGES / ".bin/gemini")]
    await host.connected("Connected", *program, "mcp", "list", **variables)

    async def ask(prompt):
        return await host.said(*program, "--model", "gemini-2.5-flash", "--approval-mode", "yolo", "--prompt", prompt, **variables)

    await driver.answer(ask, is_slow=True)


driver.run(main)
