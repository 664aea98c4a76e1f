"""Progress and cost, told to whoever runs the handler.

``owlclaw_worker`` exists only where the application runs behind the MCP server.
Anywhere else, under OwlClaw itself or in a test, there is nobody to tell.
"""

from decimal import Decimal

try:
    import owlclaw_worker
except ImportError:
    owlclaw_worker = None


def report_progress(done: float, total: float, message: str) -> None:
    """Says that ``done`` of ``total`` steps are finished."""
    if owlclaw_worker is not None:
        owlclaw_worker.progress(done, total, message)


def report_cost(amount_usd: Decimal) -> None:
    """Says what this call has really cost, in US dollars."""
    if owlclaw_worker is not None:
        owlclaw_worker.cost(amount_usd)
