"""Northwind-shaped data, made here: the same rows on every machine, and lazily, so that any scale streams into COPY.

Small tables are CSV files in data/northwind (names invented; only what the reference walkthroughs state is theirs).
So are the items of each order, once drawn at random so that `customer_profiles.csv` is met, which gives each customer's
number of orders, and the quantity and revenue its items have on average: the findings of the dashboard (three big
customers, five promising ones) are input, not luck, and a test holds that. Dates and freight are made here, and the
orders of a larger scale. Order 11075 is left out: the walkthrough inserts it later, as row 830 with details 2,153 to
2,155.

Only `Random.random()` is drawn from: the one method whose sequence Python promises to keep for a seed.
"""
from __future__ import annotations

from datetime import date, timedelta
from functools import lru_cache
from random import Random
from typing import Dict, Iterator, List, Optional, Tuple

from ..base.errors import SourceError
from ..base.paths import ROOT
from ..source import csv_files
from ..source.loading import Table

DATA = ROOT / "data" / "northwind"
LAST = 11077  # order id at scale 1
UNSHIPPED = 11077  # S1: updated later
FIRST_DAY, DAYS = date(1996, 7, 4), 671  # order dates; the last day is 1998-05-06
SMALL_TABLES = ("region", "territories", "categories", "suppliers", "shippers", "products", "employees",
                "employee_territories", "customers")
ORDER_COLUMNS = ("order_id", "customer_id", "employee_id", "order_date", "required_date", "shipped_date", "ship_via",
                 "freight", "ship_name", "ship_address", "ship_city", "ship_region", "ship_postal_code", "ship_country")
DETAIL_COLUMNS = ("order_id", "product_id", "unit_price", "quantity", "discount")


def northwind(scale: int = 1) -> List[Table]:
    """Return the tables of Northwind in the order to load them.

    Args:
        scale: 1 gives 829 orders with 2,152 details; n gives n times as many, with further order ids from 11078 on
            and the same customers and products.
    Raises:
        SourceError: scale is not a whole number from 1 to 1000.
    """
    if type(scale) is not int or not 1 <= scale <= 1000:
        raise SourceError(f"scale is {scale!r}", expected="a whole number from 1 to 1000")
    return [*map(_small, SMALL_TABLES), Table("orders", ORDER_COLUMNS, lambda: _orders(scale)),
            Table("order_details", DETAIL_COLUMNS, lambda: _details(scale))]


def _small(name: str) -> Table:
    rows = csv_files.read(DATA, name)
    return Table(name, tuple(rows[0]), lambda: (tuple(v or None for v in row.values()) for row in rows))


def below(rng: Random, n: int) -> int:
    """Return a random whole number from 0 to n - 1."""
    return int(rng.random() * n)


@lru_cache(maxsize=1)
def _plan() -> Dict[int, Tuple[str, List[tuple]]]:
    """Return scale 1: order id → customer and items (product, price, quantity, discount)."""
    prices = {p["product_id"]: float(p["unit_price"]) for p in csv_files.read(DATA, "products")}
    plan: Dict[int, Tuple[str, List[tuple]]] = {}
    for row in csv_files.read(DATA, "order_details"):
        _, items = plan.setdefault(int(row["order_id"]), (row["customer_id"], []))
        product = row["product_id"]
        items.append((int(product), prices[product], int(row["quantity"]), float(row["discount"])))
    return plan


def _blocks(scale: int) -> Iterator[Tuple[int, int, str, List[tuple], Random]]:
    """Yield (order id, position within its block, customer, items, random numbers of this block). Every further block
    of orders repeats the plan with small changes."""
    plan = _plan()
    for block in range(scale):
        rng = Random(block)
        for place, (order, (customer, items)) in enumerate(plan.items()):
            further = LAST + 1 + (block - 1) * len(plan) + place
            yield order if block == 0 else further, place, customer, items, rng


def _orders(scale: int) -> Iterator[tuple]:
    ship_to = {c["customer_id"]: tuple(c[k] or None for k in (
        "company_name", "address", "city", "region", "postal_code", "country"))
        for c in csv_files.read(DATA, "customers")}
    for order, place, customer, _, rng in _blocks(scale):
        ordered = FIRST_DAY + timedelta(days=place * DAYS // 828)
        shipped: Optional[date] = ordered + timedelta(days=2 + below(rng, 18))
        if shipped > FIRST_DAY + timedelta(days=DAYS) or order == UNSHIPPED:
            shipped = None  # not yet, on the last day
        yield (order, customer, 1 + below(rng, 9), ordered, ordered + timedelta(days=28), shipped,
               1 + below(rng, 3), (50 + below(rng, 15000)) / 100, *ship_to[customer])


def _details(scale: int) -> Iterator[tuple]:
    for order, _, _, items, rng in _blocks(scale):
        for product, price, planned, discount in items:
            # a repeated block differs a little, by quantities whose mean stays
            quantity = planned if order <= LAST else max(1, planned - 1 + below(rng, 3))
            yield order, product, price, quantity, discount
