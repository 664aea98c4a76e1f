from decimal import Decimal
from typing import Any, Callable, Dict, Literal, NamedTuple, Optional, Tuple, Union

from .around import CallNext as CallNext, Middleware as Middleware, MiddlewareContext as MiddlewareContext
from .asking import (
    AcceptedElicitation as AcceptedElicitation,
    AcceptedUrlElicitation as AcceptedUrlElicitation,
    CancelledElicitation as CancelledElicitation,
    CannotAsk as CannotAsk,
    DeclinedElicitation as DeclinedElicitation,
    ResourceContent as ResourceContent,
    Root as Root,
)
from .context import Context as Context, current as get_context, headers as get_http_headers
from .content import Audio as Audio, File as File, Image as Image, ToolResult as ToolResult
from .fastmcp import FastMCP as FastMCP
from .offers import (
    AssistantMessage as AssistantMessage,
    Completion as Completion,
    CompletionArgument as CompletionArgument,
    CompletionContext as CompletionContext,
    Message as Message,
    PromptReference as PromptReference,
    PromptResult as PromptResult,
    ResourceResult as ResourceResult,
    ResourceTemplateReference as ResourceTemplateReference,
    Tool as Tool,
    UserMessage as UserMessage,
)

__all__ = [
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "AssistantMessage",
    "Audio",
    "CallNext",
    "Caller",
    "CancelledElicitation",
    "CannotAsk",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "Context",
    "DeclinedElicitation",
    "Depends",
    "FastMCP",
    "File",
    "Image",
    "Message",
    "Middleware",
    "MiddlewareContext",
    "PromptError",
    "PromptReference",
    "PromptResult",
    "ResourceContent",
    "ResourceError",
    "ResourceResult",
    "ResourceTemplateReference",
    "Root",
    "Tool",
    "ToolError",
    "ToolResult",
    "UserMessage",
    "caller",
    "cancelled",
    "cost",
    "get_context",
    "get_http_headers",
    "log",
    "progress",
    "trace_context",
]

class ToolError(Exception): ...
class ResourceError(Exception): ...
class PromptError(Exception): ...

class Caller(NamedTuple):
    principal: str
    roles: Tuple[str, ...]
    request_id: str
    trace: Dict[str, str]

def Depends(dependency: Callable[..., Any], use_cache: bool = True) -> Any: ...
def caller() -> Optional[Caller]: ...
def progress(
    progress: Union[int, float, Decimal],
    total: Optional[Union[int, float, Decimal]] = None,
    message: Optional[object] = None,
) -> None: ...
def cost(
    usd: Union[str, int, float, Decimal],
    model: Optional[object] = None,
    tokens_in: Optional[int] = None,
    tokens_out: Optional[int] = None,
) -> None: ...
def cost_trace(trace_id: str) -> None: ...
def log(message: object, level: Literal["debug", "info", "warning", "error"] = "info") -> None: ...
def cancelled() -> bool: ...
def trace_context() -> Dict[str, str]: ...
