"""A shop for agents: one tool that works, one that fails, one that may be refused, one that is hidden, one that
reports progress, and one that is slow."""

import time
from pathlib import Path

import owlclaw_worker
from owlclaw import OwlClaw

app = OwlClaw("shop")
app.mount_skills(str(Path(__file__).with_name("skills")))


@app.handler("stock-check")
def stock_check(sku: str, note: str | None = None) -> dict:
    """Says how many there are."""
    return {"sku": sku, "on_hand": 42, "note": note}


@app.handler("stock-count")
def stock_count(sku: str) -> dict:
    """Fails."""
    raise ValueError(f"the shelf of {sku} has fallen down")


@app.handler("stock-sell")
def stock_sell(sku: str) -> dict:
    """Is refused."""
    return {"sold": sku}


@app.handler("stock-hidden")
def stock_hidden(sku: str) -> dict:
    """Is not seen."""
    return {"hidden": sku}


@app.handler("stock-walk")
def stock_walk(shelves: int) -> str:
    """Reports progress."""
    for shelf in range(1, shelves + 1):
        owlclaw_worker.progress(shelf, total=shelves, message=f"shelf {shelf}")
        time.sleep(0.2)
    return "walked"


@app.handler("stock-slow")
def stock_slow(seconds: float) -> str:
    """Takes longer than it may."""
    time.sleep(seconds)
    return "late"
