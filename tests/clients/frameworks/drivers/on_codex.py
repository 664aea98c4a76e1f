"""Codex."""

import driver
import host


async def main(plan):
    provider = f'name = "none"\nbase_url = "{plan["model"]}"\nwire_api = "responses"\n'
    host.written(".codex/config.toml", f'model = "none"\nmodel_provider = "none"\n\n{host.entry("codex")}\n[model_providers.none]\n{provider}')
    program = ["node", str(host.PACKAGES / ".bin/codex")]
    await host.connected("owlclaw", *program, "mcp", "list")

    async def ask(prompt):
        words = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        # Else the first turn does not wait for a server that starts.
        return await host.said(*program, "exec", *words, "-c", "mcp_servers.owlclaw.required=true", prompt)

    await driver.answer(ask, is_slow=True)


driver.run(main)
