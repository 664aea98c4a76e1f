"""Turnover, prices and margins."""

import random
import time
from collections import defaultdict
from decimal import Decimal
from typing import Any, Dict, List, Literal, Optional

from . import store
from .application import app
from .metering import report_cost, report_progress

SIMULATION_USD_PER_RUN = Decimal("0.00002")


@app.handler("sales-report")
async def sales_report(
    month: str,
    group_by: Literal["category", "channel", "sku"] = "category",
    channels: Optional[List[str]] = None,
) -> Dict[str, Any]:
    """Adds up the orders of one month.

    Args:
        month: For example `2026-05`.
        group_by: What the turnover is split by.
        channels: Only orders from these channels (`shop`, `web`); all by default.
    """
    with store.transaction() as connection:
        rows = connection.execute(
            """SELECT o.channel, p.category, l.sku, l.quantity, l.unit_price_cents, l.order_id
               FROM order_lines l JOIN orders o USING (order_id) JOIN products p USING (sku)
               WHERE substr(o.placed_on, 1, 7) = ?""",
            (month,),
        ).fetchall()
    rows = [row for row in rows if not channels or row["channel"] in channels]
    if not rows:
        raise LookupError(f"there are no orders in {month}; records run from 2026-04 to 2026-06")
    turnover: Dict[str, int] = defaultdict(int)
    for row in rows:
        turnover[row[group_by]] += row["quantity"] * row["unit_price_cents"]
    return {
        "month": month,
        "orders": len({row["order_id"] for row in rows}),
        "turnover_cents": sum(turnover.values()),
        "by_" + group_by: dict(sorted(turnover.items())),
    }


@app.handler("price-forecast")
def price_forecast(sku: str, weeks: int = 4, seconds: float = 2.0) -> Dict[str, Any]:
    """Forecasts the price of a product, one week after the other.

    This takes its time and says how far it has come.

    Args:
        sku: Which product.
        weeks: How many weeks to look ahead, 1 to 52.
        seconds: How long the whole forecast may take; more is not more exact here.
    """
    if not 1 <= weeks <= 52:
        raise ValueError(f"weeks must be between 1 and 52, not {weeks}")
    with store.transaction() as connection:
        product = store.product(connection, sku)
    # Seeded with the product, so that the same question gets the same answer.
    chance = random.Random(sku)
    price, forecast = product["price_cents"], []
    for week in range(1, weeks + 1):
        time.sleep(seconds / weeks)
        price = round(price * chance.uniform(0.98, 1.03))
        forecast.append({"week": week, "price_cents": price})
        report_progress(week, weeks, f"week {week} of {weeks}")
    return {"sku": sku, "from": store.BUSINESS_DAY, "today_cents": product["price_cents"], "forecast": forecast}


@app.handler("margin-simulation")
def margin_simulation(discount_percent: float, runs: int = 1000, category: Optional[str] = None) -> Dict[str, Any]:
    """Simulates what a discount would do to the margin.

    It runs on rented machines: every thousand runs cost two cents.

    Args:
        discount_percent: How much cheaper everything becomes, 0 to 90.
        runs: How many futures to draw, 1 to 100000.
        category: Only this category; everything by default.
    """
    if not 0 <= discount_percent <= 90:
        raise ValueError(f"discount_percent must be between 0 and 90, not {discount_percent}")
    if not 1 <= runs <= 100_000:
        raise ValueError(f"runs must be between 1 and 100000, not {runs}")
    with store.transaction() as connection:
        products = [
            dict(row)
            for row in connection.execute("SELECT * FROM products ORDER BY sku")
            if category in (None, row["category"])
        ]
    if not products:
        raise LookupError(f"no product is of the category {category!r}")
    chance = random.Random(f"{discount_percent}/{runs}/{category}")
    margins = []
    for _ in range(runs):
        product = chance.choice(products)
        # Demand grows a little faster than prices fall; by how much is what is being simulated.
        demand = 1 + discount_percent / 100 * chance.uniform(0.5, 2.0)
        price = product["price_cents"] * (1 - discount_percent / 100)
        margins.append((price - product["cost_cents"]) * demand)
    report_cost(runs * SIMULATION_USD_PER_RUN)
    margins.sort()
    return {
        "runs": runs,
        "mean_margin_cents": round(sum(margins) / runs),
        "worst_tenth_cents": round(margins[runs // 10]),
        "best_tenth_cents": round(margins[runs - 1 - runs // 10]),
    }
