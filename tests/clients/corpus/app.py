"""The functions of handlers.py as tools of the server."""

import handlers
from owlclaw_worker import FastMCP

mcp = FastMCP("corpus")
for _name, _case in handlers.CASES.items():
    mcp.add_tool(_case.function, name=_name)
