"""The service desk: what takes a picture, a question to whoever sits there, or a text to begin with."""

from __future__ import annotations

import asyncio
import struct
import zlib
from dataclasses import dataclass
from typing import Literal

from owlclaw_worker import Context, Image

from . import store
from .application import app

REASONS = ["damaged", "wrong item", "late", "changed my mind"]


@dataclass
class Return:
    """What the customer says about a return."""

    reason: Literal["damaged", "wrong item", "late", "changed my mind"]
    keep_as_voucher: bool = False


@app.tool("goods-return", title="Take goods back", tags={"service"})
async def goods_return(order_id: str, ctx: Context) -> str:
    """Takes the goods of an order back, after asking why.

    Args:
        order_id: For example `O-5007`.
    """
    with store.transaction() as connection:
        lines = connection.execute("SELECT COUNT(*) FROM order_lines WHERE order_id = ?", (order_id,)).fetchone()[0]
    if lines == 0:
        raise LookupError(f"there is no order {order_id!r}")
    await ctx.report_progress(1, 2, "found the order")
    answer = await ctx.elicit(f"Why does {order_id} come back?", Return)
    if answer.action != "accept":
        return f"{order_id} stays with the customer"
    await ctx.info(f"{order_id} comes back: {answer.data.reason}", logger_name="desk")
    await ctx.report_progress(2, 2, "noted")
    await asyncio.sleep(0.1)  # The label is printed. Some clients drop progress that comes together with the answer.
    how = "a voucher" if answer.data.keep_as_voucher else "money"
    return f"{order_id} comes back with {lines} lines, for {how}: {answer.data.reason}"


@app.tool("sales-chart", title="Chart of sales", annotations={"readOnlyHint": True})
def sales_chart() -> Image:
    """Draws how many pieces of each article were sold."""
    with store.transaction() as connection:
        rows = connection.execute("SELECT SUM(quantity) FROM order_lines GROUP BY sku ORDER BY sku").fetchall()
    return Image(data=_bars([row[0] for row in rows]), format="png")


@app.resource("desk://returns/reasons", title="Reasons for returns")
def reasons() -> list[str]:
    """Reasons for which goods come back."""
    return REASONS


@app.prompt("complaint-answer", title="Answer to a complaint")
def complaint_answer(order_id: str, tone: str = "friendly") -> str:
    """Begins an answer to a complaint.

    Args:
        order_id: The order it is about.
        tone: How the answer sounds.
    """
    return f"Look up order {order_id} and answer the customer's complaint about it in a {tone} tone. Promise no refund."


@app.completion("complaint-answer", "tone")
def tones(value: str) -> list[str]:
    """Tones that begin with what was typed."""
    return [tone for tone in ("formal", "friendly", "apologetic") if tone.startswith(value)]


def _bars(values: list[int]) -> bytes:
    """A chart of bars as PNG, without a library."""
    height, width = 64, 8
    most = max(values, default=1) or 1
    rows = []
    for y in range(height):
        row = b"".join((b"\x30\x60\x90" if height - y <= value * height / most else b"\xff\xff\xff") * width for value in values)
        rows.append(b"\0" + row)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width * len(values), height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
