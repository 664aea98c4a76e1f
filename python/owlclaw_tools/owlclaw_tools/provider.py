"""Tools of servers behind a gateway, as agents have them."""

import hashlib
import string
from typing import Any, Dict, List, Optional, Sequence

from .session import MCPRegistry, ToolFailed, text_of

# Member of `_meta` in which a gateway says whose a tool is.
UPSTREAM = "io.owlclaw/upstream"
# The longest name of a function that the interfaces of models take.
MAX_NAME = 64
_LEGAL = set(string.ascii_letters + string.digits + "_-")


class UnknownServer(Exception):
    """A server of which there is no tool: misspelt, away, or not for this key."""


def model_name(name: str) -> str:
    """The name of a tool as models take it: letters, digits, `_` and `-`, 64 at most."""
    if len(name) <= MAX_NAME and set(name) <= _LEGAL:
        return name
    legal = "".join(it if it in _LEGAL else "_" for it in name)[: MAX_NAME - 9]
    return legal + "_" + hashlib.sha256(name.encode()).hexdigest()[:8]


class Tool:
    """A tool: call it with its arguments, and get the text of its result."""

    def __init__(self, registry: MCPRegistry, described: Dict[str, Any]) -> None:
        self._registry = registry
        self.name: str = described["name"]
        self.description: str = described.get("description") or ""
        self.input_schema: Dict[str, Any] = described.get("inputSchema") or {"type": "object"}
        origin = (described.get("_meta") or {}).get(UPSTREAM) or {}
        #: Name of the server behind the gateway; None for a tool of the gateway itself.
        self.server: Optional[str] = origin.get("name")
        #: Name by which a model calls it.
        self.model_name = model_name(self.name)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def __call__(self, **arguments: Any) -> str:
        return self.run(arguments)

    def run(self, arguments: Optional[Dict[str, Any]] = None) -> str:
        """Calls it.

        :raises ToolFailed: if it failed or was refused
        :raises ConnectionFailed: if there is no answer
        """
        return text_of(self._registry.call(self.name, arguments))

    def openai(self) -> Dict[str, Any]:
        """As the Chat Completions interface of OpenAI takes it."""
        function = {"name": self.model_name, "description": self.description, "parameters": self.input_schema}
        return {"type": "function", "function": function}

    def anthropic(self) -> Dict[str, Any]:
        """As the Messages interface of Anthropic takes it."""
        return {"name": self.model_name, "description": self.description, "input_schema": self.input_schema}


class MCPToolProvider:
    """Tools by the names of servers (founding document 003, section 8)."""

    def __init__(self, registry: MCPRegistry) -> None:
        self._registry = registry

    def get_tools(self, server_names: Optional[Sequence[str]] = None) -> List[Tool]:
        """Tools of these servers, in their order; without names, all that the key may see.

        :raises UnknownServer: if a server has none
        """
        tools = [Tool(self._registry, it) for it in self._registry.tools()]
        if server_names is None:
            return tools
        if isinstance(server_names, str):
            raise TypeError("the names of servers are a list")
        found: List[Tool] = []
        for server in server_names:
            own = [it for it in tools if it.server == server]
            if not own:
                raise UnknownServer(f"there is no tool of a server `{server}`")
            found.extend(own)
        return found

    def call(self, name: str, arguments: Optional[Dict[str, Any]] = None) -> str:
        """Calls what a model has chosen, by either name of the tool.

        :raises ToolFailed: if it failed, was refused, or does not exist
        :raises ConnectionFailed: if there is no answer
        """
        if set(name) <= _LEGAL and "_" in name:
            # It may stand for a longer one.
            for tool in self.get_tools():
                if tool.model_name == name:
                    name = tool.name
                    break
        return text_of(self._registry.call(name, arguments))

    def openai(self, server_names: Optional[Sequence[str]] = None) -> List[Dict[str, Any]]:
        """`tools` of the Chat Completions interface of OpenAI."""
        return [it.openai() for it in self.get_tools(server_names)]

    def anthropic(self, server_names: Optional[Sequence[str]] = None) -> List[Dict[str, Any]]:
        """`tools` of the Messages interface of Anthropic."""
        return [it.anthropic() for it in self.get_tools(server_names)]

    def langchain(self, server_names: Optional[Sequence[str]] = None) -> List[Any]:
        """Tools of LangChain; needs the package `langchain-core`."""
        from langchain_core.tools import StructuredTool, ToolException

        def tool_of(tool: Tool) -> Any:
            def call(**arguments: Any) -> str:
                try:
                    return tool.run(arguments)
                except ToolFailed as failed:
                    raise ToolException(str(failed)) from failed

            return StructuredTool(
                name=tool.model_name,
                description=tool.description or tool.name,
                args_schema=tool.input_schema,
                func=call,
                # The model reads why, and may do something else.
                handle_tool_error=True,
                metadata={"server": tool.server, "tool": tool.name},
            )

        return [tool_of(it) for it in self.get_tools(server_names)]

    def crewai(self, server_names: Optional[Sequence[str]] = None) -> List[Any]:
        """Tools of CrewAI; needs the package `crewai`."""
        from crewai.tools import BaseTool
        from pydantic import BaseModel, ConfigDict

        def arguments_of(tool: Tool) -> Any:
            # CrewAI shows a model the schema of a class, and hands on what the class takes.
            class Arguments(BaseModel):
                model_config = ConfigDict(extra="allow")

                @classmethod
                def model_json_schema(cls, *_: Any, **__: Any) -> Dict[str, Any]:
                    return dict(tool.input_schema)

            Arguments.__name__ = "Arguments_" + tool.model_name
            return Arguments

        def tool_of(tool: Tool) -> Any:
            class Provided(BaseTool):
                def _run(self, **arguments: Any) -> str:
                    try:
                        return tool.run(arguments)
                    except ToolFailed as failed:
                        return str(failed)

            return Provided(
                name=tool.model_name,
                description=tool.description or tool.name,
                args_schema=arguments_of(tool),
            )

        return [tool_of(it) for it in self.get_tools(server_names)]
