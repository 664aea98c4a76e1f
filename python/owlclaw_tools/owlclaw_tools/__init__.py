"""Tools behind an OwlClaw MCP server, for agents.

An agent gets tools by the names of servers and never a server itself (founding document 003, sections 8 and 9): calls go
to the gateway over Streamable HTTP, which decides on them and records them.
"""

from .provider import MCPToolProvider, Tool, UnknownServer, model_name
from .session import ConnectionFailed, MCPRegistry, ToolFailed

__all__ = [
    "ConnectionFailed",
    "MCPRegistry",
    "MCPToolProvider",
    "Tool",
    "ToolFailed",
    "UnknownServer",
    "model_name",
]
