"""The retail back office. ``owlclaw-mcp start --config mcp-server.yaml`` serves it over MCP."""

from backoffice import desk, inventory, sales, service  # noqa: F401  (importing them registers their handlers)
from backoffice.application import app

if __name__ == "__main__":
    app.run()
