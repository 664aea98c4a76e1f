"""The shop's records: one SQLite file, filled from ``data/*.json`` when it is new.

A file and not a dictionary, because a server may run this application in
several processes at once and a purchase order placed in one of them must be
seen by all. ``RETAIL_DB`` names another file, for example one per test.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .application import ROOT

DATA = ROOT / "data"

# The seed orders end on this day; "today" never moves, so that every report is repeatable.
BUSINESS_DAY = "2026-06-30"

SCHEMA = """
CREATE TABLE products (
    sku TEXT PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL,
    price_cents INTEGER NOT NULL, cost_cents INTEGER NOT NULL,
    on_hand INTEGER NOT NULL CHECK (on_hand >= 0),
    reorder_point INTEGER NOT NULL, reorder_quantity INTEGER NOT NULL,
    supplier_id TEXT NOT NULL, bay TEXT NOT NULL);
CREATE TABLE suppliers (
    supplier_id TEXT PRIMARY KEY, name TEXT NOT NULL, lead_days INTEGER NOT NULL,
    minimum_order_cents INTEGER NOT NULL, express_surcharge_percent INTEGER NOT NULL);
CREATE TABLE customers (
    customer_id TEXT PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE,
    since TEXT NOT NULL, points INTEGER NOT NULL);
CREATE TABLE orders (
    order_id TEXT PRIMARY KEY, customer_id TEXT NOT NULL, placed_on TEXT NOT NULL, channel TEXT NOT NULL);
CREATE TABLE order_lines (
    order_id TEXT NOT NULL, sku TEXT NOT NULL, quantity INTEGER NOT NULL, unit_price_cents INTEGER NOT NULL);
CREATE TABLE purchase_orders (
    number INTEGER PRIMARY KEY, supplier_id TEXT NOT NULL, priority TEXT NOT NULL, total_cents INTEGER NOT NULL);
CREATE TABLE purchase_lines (number INTEGER NOT NULL, sku TEXT NOT NULL, quantity INTEGER NOT NULL);
CREATE TABLE write_offs (
    id INTEGER PRIMARY KEY, sku TEXT NOT NULL, quantity INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE refunds (
    id INTEGER PRIMARY KEY, order_id TEXT NOT NULL, amount_cents INTEGER NOT NULL, reason TEXT NOT NULL);
"""


def _path() -> Path:
    return Path(os.environ.get("RETAIL_DB") or DATA / "retail.db")


def _seed(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    for table in ("products", "suppliers", "customers"):
        for row in json.loads((DATA / f"{table}.json").read_text(encoding="utf-8")):
            places = ", ".join(f":{column}" for column in row)
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)
    for order in json.loads((DATA / "orders.json").read_text(encoding="utf-8")):
        connection.execute("INSERT INTO orders VALUES (:order_id, :customer_id, :placed_on, :channel)", order)
        for line in order["lines"]:
            connection.execute(
                "INSERT INTO order_lines VALUES (?, ?, ?, ?)",
                (order["order_id"], line["sku"], line["quantity"], line["unit_price_cents"]),
            )
    connection.execute("PRAGMA user_version = 1")


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """A connection in a transaction: committed when the block ends, undone when it raises.

    Each call opens its own connection. A connection must not be carried over a
    ``fork()``, and a server may well fork the process that imported us.
    """
    try:
        connection = sqlite3.connect(_path(), timeout=10.0, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise RuntimeError(f"{_path()}: {error}; RETAIL_DB names another place") from error
    connection.row_factory = sqlite3.Row
    try:
        # IMMEDIATE: two processes that open a new file together must not both fill it.
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                _seed(connection)
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    finally:
        connection.close()


def product(connection: sqlite3.Connection, sku: str) -> dict[str, Any]:
    """The product with this SKU.

    Raises:
        LookupError: There is none.
    """
    row = connection.execute("SELECT * FROM products WHERE sku = ?", (sku,)).fetchone()
    if row is None:
        raise LookupError(f"no product has the SKU {sku!r}")
    return dict(row)


def supplier(connection: sqlite3.Connection, supplier_id: str) -> dict[str, Any]:
    """The supplier with this id.

    Raises:
        UnknownSupplier: There is none; the message lists those there are.
    """
    row = connection.execute("SELECT * FROM suppliers WHERE supplier_id = ?", (supplier_id,)).fetchone()
    if row is None:
        known = [r[0] for r in connection.execute("SELECT supplier_id FROM suppliers ORDER BY 1")]
        raise UnknownSupplier(f"no supplier has the id {supplier_id!r}; known ids: {', '.join(known)}")
    return dict(row)


class UnknownSupplier(LookupError):
    """A supplier id that is not on file."""
