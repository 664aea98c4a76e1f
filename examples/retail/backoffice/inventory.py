"""Stock, purchase orders and suppliers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from . import store
from .application import app

EXPRESS_DAYS = 2


@dataclass
class OrderLine:
    """One product to order.

    Attributes:
        sku: Which product.
        quantity: How many; the product's usual reorder quantity when left out.
    """

    sku: str
    quantity: Optional[int] = None


@dataclass
class PurchaseOrder:
    """An order as it was placed with the supplier."""

    number: int
    supplier_id: str
    priority: str
    lines: list[OrderLine]
    total_cents: int
    expected_in_days: int
    notes: dict[str, str] = field(default_factory=dict)


@app.handler("inventory-check")
def inventory_check(session: dict[str, Any]) -> dict[str, Any]:
    """Shows what is in stock and what has fallen to its reorder point.

    Looks at one product (`sku`), at one `category`, or at everything. With
    `only_low: true` it leaves out whatever there is enough of.
    """
    with store.transaction() as connection:
        if session.get("sku"):
            products = [store.product(connection, str(session["sku"]))]
        else:
            rows = connection.execute("SELECT * FROM products ORDER BY sku")
            products = [dict(row) for row in rows if session.get("category") in (None, row["category"])]
    items = [
        {
            "sku": product["sku"],
            "name": product["name"],
            "bay": product["bay"],
            "on_hand": product["on_hand"],
            "reorder_point": product["reorder_point"],
            "low": product["on_hand"] <= product["reorder_point"],
        }
        for product in products
    ]
    if session.get("only_low"):
        items = [item for item in items if item["low"]]
    return {"count": len(items), "low": sum(item["low"] for item in items), "items": items}


@app.handler("stock-reorder")
def stock_reorder(
    lines: list[OrderLine],
    supplier_id: Optional[str] = None,
    priority: Literal["normal", "express"] = "normal",
    notes: dict[str, str] | None = None,
) -> PurchaseOrder:
    """Places a purchase order with one supplier.

    Args:
        lines: What to order. All products must come from the same supplier.
        supplier_id: Who delivers; by default the supplier of the first product.
        priority: Express arrives in two days and costs a surcharge.
        notes: Remarks for the supplier, by topic.
    """
    if not lines:
        raise ValueError("a purchase order needs at least one line")
    # Whoever calls over JSON sends objects; whoever calls from Python may send the class.
    wanted = [line if isinstance(line, OrderLine) else OrderLine(**line) for line in lines]
    with store.transaction() as connection:
        total = 0
        for line in wanted:
            product = store.product(connection, line.sku)
            supplier_id = supplier_id or product["supplier_id"]
            if product["supplier_id"] != supplier_id:
                raise ValueError(f"{line.sku} is delivered by {product['supplier_id']}, not by {supplier_id}")
            if line.quantity is None:
                line.quantity = product["reorder_quantity"]
            if line.quantity <= 0:
                raise ValueError(f"{line.sku}: a quantity must be positive, not {line.quantity}")
            total += line.quantity * product["cost_cents"]
        supplier = store.supplier(connection, supplier_id)
        if total < supplier["minimum_order_cents"]:
            raise ValueError(
                f"{supplier['name']} takes orders from {supplier['minimum_order_cents']} cents on; this one is {total}"
            )
        if priority == "express":
            total += total * supplier["express_surcharge_percent"] // 100
        number = connection.execute(
            "INSERT INTO purchase_orders (supplier_id, priority, total_cents) VALUES (?, ?, ?)",
            (supplier_id, priority, total),
        ).lastrowid
        connection.executemany(
            "INSERT INTO purchase_lines VALUES (?, ?, ?)", [(number, line.sku, line.quantity) for line in wanted]
        )
    return PurchaseOrder(
        number=number,
        supplier_id=supplier_id,
        priority=priority,
        lines=wanted,
        total_cents=total,
        expected_in_days=EXPRESS_DAYS if priority == "express" else supplier["lead_days"],
        notes=notes or {},
    )


@app.handler("stock-write-off")
def stock_write_off(sku: str, quantity: int, reason: Literal["damaged", "expired", "lost"]) -> dict[str, Any]:
    """Takes goods that cannot be sold any more out of the stock.

    Args:
        sku: Which product.
        quantity: How many pieces; no more than there are.
        reason: Why they cannot be sold.
    """
    if quantity <= 0:
        raise ValueError(f"a quantity must be positive, not {quantity}")
    with store.transaction() as connection:
        product = store.product(connection, sku)
        if quantity > product["on_hand"]:
            raise ValueError(f"only {product['on_hand']} of {sku} are on hand, {quantity} cannot be written off")
        connection.execute("UPDATE products SET on_hand = on_hand - ? WHERE sku = ?", (quantity, sku))
        connection.execute(
            "INSERT INTO write_offs (sku, quantity, reason) VALUES (?, ?, ?)", (sku, quantity, reason)
        )
    return {
        "sku": sku,
        "written_off": quantity,
        "on_hand": product["on_hand"] - quantity,
        "loss_cents": quantity * product["cost_cents"],
    }


@app.handler("supplier-ping")
async def supplier_ping(supplier_id: str) -> dict[str, Any]:
    """Asks whether a supplier takes orders today, and how long delivery takes.

    Args:
        supplier_id: For example `SUP-CAPE`.
    """
    with store.transaction() as connection:
        supplier = store.supplier(connection, supplier_id)
    return {"supplier_id": supplier_id, "name": supplier["name"], "open": True, "lead_days": supplier["lead_days"]}


@app.handler("audit-print")
def audit_print(category: str = "", copies: int = 1) -> dict[str, Any]:
    """Prints the counting list for a stock audit.

    The shop's label printer is driven by a program that writes to its standard
    output, as many such programs do.

    Args:
        category: Only products of this category; everything by default.
        copies: How many copies.
    """
    with store.transaction() as connection:
        rows = connection.execute("SELECT bay, sku, category FROM products ORDER BY bay").fetchall()
    lines = [f"{row['bay']}  {row['sku']}  ______" for row in rows if category in ("", row["category"])]
    print(f"printing {copies} x {len(lines)} lines")
    driver = "import sys; sys.stdout.write(sys.argv[1] * int(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", driver, "\n".join(lines) + "\n", str(copies)], check=True)
    return {"lines": len(lines), "copies": copies}


@app.state("low_stock")
def low_stock() -> dict[str, Any]:
    """What has to be ordered soon."""
    return inventory_check({"only_low": True})
