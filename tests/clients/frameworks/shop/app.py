"""A shop for agents: tools that work, fail, are refused, wait for a person, report progress or are slow, and those of
the corpus, which have arguments and results of all types."""

import json
import sys
import time
from pathlib import Path

import owlclaw_worker
from owlclaw import OwlClaw

sys.path.insert(0, str(Path(__file__).with_name("corpus")))
import handlers  # noqa: E402

app = OwlClaw("shop")
app.mount_skills(str(Path(__file__).with_name("skills")))


@app.handler("stock-check")
def stock_check(sku: str, note: str | None = None, shelf: int = 1) -> dict:
    """Says how many there are."""
    return {"sku": sku, "on_hand": 42, "note": note, "shelf": shelf}


@app.handler("stock-count")
def stock_count(sku: str) -> dict:
    """Fails."""
    raise ValueError(f"the shelf of {sku} has fallen down")


@app.handler("stock-sell")
def stock_sell(sku: str) -> dict:
    """Is refused."""
    return {"sold": sku}


@app.handler("stock-order")
def stock_order(sku: str) -> dict:
    """Waits for a person."""
    return {"ordered": sku}


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


# Last, since some frameworks know the first page of tools alone.
_without = json.loads(Path(__file__).with_name("without.json").read_text())
for _name, _case in handlers.CASES.items():
    if _name not in _without:
        app.handler(_name)(_case.function)
