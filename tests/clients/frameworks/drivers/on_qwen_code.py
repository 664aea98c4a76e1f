"""Qwen Code, which has the settings of Gemini CLI."""

import json

import driver
import host


async def main(plan):
    settings = json.loads(host.entry("gemini"))
    host.written(".qwen/settings.json", settings | {"tools": {"toolSearch": {"enabled": False}}})
    variables = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": plan["model"], "OPENAI_MODEL": "none"}
    program = ["node", str(host.PACKAGES / ".bin/qwen")]
    await host.connected("Connected", *program, "mcp", "list", **variables)

    async def ask(prompt):
        return await host.said(*program, "--auth-type", "openai", "--approval-mode", "yolo", "--prompt", prompt, **variables)

    await driver.answer(ask, is_slow=True)


driver.run(main)
