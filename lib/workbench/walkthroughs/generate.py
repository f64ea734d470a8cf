"""Northwind-shaped data, made here: the same rows on every machine, and lazily, so that any scale streams into COPY.

Small tables are CSV files in data/northwind (names invented; only what the reference walkthroughs state is theirs).
Orders and details are made from `customer_profiles.csv`, which gives each customer's number of orders, and the quantity
and revenue its items have on average. So the findings of the dashboard (three big customers, five promising ones) are
input, not luck. Order 11075 is left out: the walkthrough inserts it later, as row 830 with details 2,153 to 2,155.

Only `Random.random()` is drawn from: the one method whose sequence Python promises to keep for a seed.
"""
from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from random import Random
from typing import Dict, Iterator, List, Optional, Tuple

from ..base.errors import SourceError
from ..base.paths import ROOT
from ..source import csv_files
from ..source.loading import Table

DATA = ROOT / "data" / "northwind"
FIRST, LAST = 10248, 11077  # order ids at scale 1
LEFT_OUT, UNSHIPPED = 11075, 11077  # S1: inserted later (RICSU); updated later (RATTC, 25 details)
UNSHIPPED_DETAILS = 25
FIRST_DAY, DAYS = date(1996, 7, 4), 671  # order dates; the last day is 1998-05-06
SMALL_TABLES = ("region", "territories", "categories", "suppliers", "shippers", "products", "employees",
                "employee_territories", "customers")
ORDER_COLUMNS = ("order_id", "customer_id", "employee_id", "order_date", "required_date", "shipped_date", "ship_via",
                 "freight", "ship_name", "ship_address", "ship_city", "ship_region", "ship_postal_code", "ship_country")
DETAIL_COLUMNS = ("order_id", "product_id", "unit_price", "quantity", "discount")
DISCOUNTS = (0, 0, 0, 0, 0, 0, 5, 10, 15, 20, 25)  # percent, as often as they stand here


@dataclass
class Item:
    """One order detail while it is being planned."""

    product: int
    cents: int
    quantity: int
    percent: int

    def revenue(self) -> int:
        return self.cents * self.quantity * (100 - self.percent)  # in hundredths of a cent: whole numbers stay exact


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


def _shuffle(rng: Random, items: list) -> None:
    for i in range(len(items) - 1, 0, -1):
        j = below(rng, i + 1)
        items[i], items[j] = items[j], items[i]


@lru_cache(maxsize=1)
def _plan() -> Dict[int, Tuple[str, List[Item]]]:
    """Plan scale 1: order id → customer and items. Every further block of orders repeats it with small changes."""
    rng = Random(830)
    profiles = {p["customer_id"]: p for p in csv_files.read(DATA, "customer_profiles")}
    customers = [c for c, p in profiles.items() for _ in range(int(p["orders"]))]
    customers.remove("RICSU")  # order 11075, with 3 of RICSU's items
    customers.remove("RATTC")  # order 11077 is the last
    _shuffle(rng, customers)
    ids = [i for i in range(FIRST, LAST + 1) if i != LEFT_OUT]
    owner = dict(zip(ids, [*customers, "RATTC"]))
    prices = {int(p["product_id"]): round(float(p["unit_price"]) * 100) for p in csv_files.read(DATA, "products")}
    plan: Dict[int, Tuple[str, List[Item]]] = {i: (owner[i], []) for i in ids}
    for customer, profile in profiles.items():
        mine: Dict[int, List[Item]] = {i: [] for i in ids if owner[i] == customer}
        if mine:
            sizes = _sizes(rng, list(mine), int(profile["items"]) - (3 if customer == "RICSU" else 0))
            _fill(rng, mine, sizes, prices, float(profile["item_quantity"]), float(profile["item_revenue"]))
        for i, items in mine.items():
            plan[i][1].extend(sorted(items, key=lambda item: item.product))
    return plan


def _sizes(rng: Random, orders: List[int], items: int) -> Dict[int, int]:
    """Spread a customer's items over the orders: at least 1 each, at most 6; order 11077 has its 25."""
    sizes = {i: UNSHIPPED_DETAILS if i == UNSHIPPED else 1 for i in orders}
    missing = items - sum(sizes.values())
    while missing:
        i = orders[below(rng, len(orders))]
        if sizes[i] < 6:
            sizes[i] += 1
            missing -= 1
    return sizes


def _fill(rng: Random, orders: Dict[int, List[Item]], sizes: Dict[int, int], prices: Dict[int, int],
          quantity: float, revenue: float) -> None:
    """Give one customer's orders their items so that quantity and revenue per item average what is asked for."""
    mean = revenue / quantity * 100
    prices = {product: cents for product, cents in prices.items() if cents < 8 * mean}  # no item outweighs all others
    for order, items in orders.items():
        free = list(prices)
        _shuffle(rng, free)
        for product in free[:sizes[order]]:
            items.append(Item(product, prices[product], max(1, round(quantity * (0.3 + 1.4 * rng.random()))),
                              DISCOUNTS[below(rng, len(DISCOUNTS))]))
    items = [item for items in orders.values() for item in items]
    off = round(quantity * len(items)) - sum(item.quantity for item in items)
    while off:
        item, step = items[below(rng, len(items))], 1 if off > 0 else -1
        if item.quantity + step > 0:
            item.quantity += step
            off -= step
    _reprice(rng, orders, prices, round(revenue * 10000) * len(items))


def _reprice(rng: Random, orders: Dict[int, List[Item]], prices: Dict[int, int], target: int) -> None:
    """Swap products, one at a time, as long as that brings the revenue nearer to the target (to a thousandth)."""
    off = target - sum(item.revenue() for items in orders.values() for item in items)
    lists, products = list(orders.values()), list(prices)
    for _ in range(20000):
        if abs(off) * 1000 < target:
            return
        items = lists[below(rng, len(lists))]
        item, product = items[below(rng, len(items))], products[below(rng, len(products))]
        change = (prices[product] - item.cents) * item.quantity * (100 - item.percent)
        if abs(off - change) < abs(off) and all(other.product != product for other in items):
            item.product, item.cents = product, prices[product]
            off -= change


def _blocks(scale: int) -> Iterator[Tuple[int, int, str, List[Item], Random]]:
    """Yield (order id, position within its block, customer, items, random numbers of this block)."""
    plan = _plan()
    following = LAST + 1
    for block in range(scale):
        rng = Random(block)
        for place, (order, (customer, items)) in enumerate(plan.items()):
            yield order if block == 0 else following + (block - 1) * len(plan) + place, place, customer, items, rng


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
        for item in items:
            # a repeated block differs a little, by quantities whose mean stays
            quantity = item.quantity if order <= LAST else max(1, item.quantity - 1 + below(rng, 3))
            yield order, item.product, item.cents / 100, quantity, item.percent / 100
