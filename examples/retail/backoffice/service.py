"""Customers, refunds and loyalty points."""

from __future__ import annotations

from typing import Any, Literal, Union

from . import store
from .application import app

POINTS_PER_VOUCHER = 500


@app.handler("customer-lookup")
def customer_lookup(key: Union[int, str]) -> dict[str, Any]:
    """Finds a customer and their orders.

    Args:
        key: A customer number, with or without `C-` (`1003`, `C-1003`), or an e-mail address.
    """
    text = str(key).strip()
    customer_id = text if text.upper().startswith("C-") else f"C-{text}"
    with store.transaction() as connection:
        row = connection.execute(
            "SELECT * FROM customers WHERE customer_id = ? OR email = ?", (customer_id.upper(), text.lower())
        ).fetchone()
        if row is None:
            raise LookupError(f"no customer is known as {text!r}")
        orders = connection.execute(
            """SELECT o.order_id, o.placed_on, SUM(l.quantity * l.unit_price_cents) AS total_cents
               FROM orders o JOIN order_lines l USING (order_id)
               WHERE o.customer_id = ? GROUP BY o.order_id ORDER BY o.order_id""",
            (row["customer_id"],),
        ).fetchall()
    return {**dict(row), "orders": [dict(order) for order in orders]}


@app.handler("refund-issue")
def refund_issue(
    order_id: str,
    amount_cents: int,
    reason: Literal["damaged", "wrong item", "late", "goodwill"],
) -> dict[str, Any]:
    """Pays money back for an order.

    The refunds of an order never add up to more than its total.

    Args:
        order_id: For example `O-5007`.
        amount_cents: How much, in cents.
        reason: Why.
    """
    if amount_cents <= 0:
        raise ValueError(f"an amount must be positive, not {amount_cents}")
    with store.transaction() as connection:
        total = connection.execute(
            "SELECT SUM(quantity * unit_price_cents) FROM order_lines WHERE order_id = ?", (order_id,)
        ).fetchone()[0]
        if total is None:
            raise LookupError(f"there is no order {order_id!r}")
        refunded = connection.execute(
            "SELECT COALESCE(SUM(amount_cents), 0) FROM refunds WHERE order_id = ?", (order_id,)
        ).fetchone()[0]
        if amount_cents > total - refunded:
            raise ValueError(f"{total - refunded} of {total} cents can still be refunded, not {amount_cents}")
        connection.execute(
            "INSERT INTO refunds (order_id, amount_cents, reason) VALUES (?, ?, ?)", (order_id, amount_cents, reason)
        )
    return {"order_id": order_id, "refunded_cents": refunded + amount_cents, "total_cents": total}


@app.handler("loyalty-points")
async def loyalty_points(customer_id: str) -> dict[str, Any]:
    """查询会员积分，并计算可兑换的代金券数量。

    Args:
        customer_id: 会员编号，例如 `C-1003`。
    """
    with store.transaction() as connection:
        row = connection.execute(
            "SELECT name, points FROM customers WHERE customer_id = ?", (customer_id,)
        ).fetchone()
    if row is None:
        raise LookupError(f"没有编号为 {customer_id} 的会员")
    return {"customer_id": customer_id, "name": row["name"], "points": row["points"],
            "vouchers": row["points"] // POINTS_PER_VOUCHER}


@app.state("refunds_today")
async def refunds_today() -> dict[str, Any]:
    """How many refunds were paid, and how much they come to."""
    with store.transaction() as connection:
        row = connection.execute("SELECT COUNT(*), COALESCE(SUM(amount_cents), 0) FROM refunds").fetchone()
    return {"count": row[0], "amount_cents": row[1]}
