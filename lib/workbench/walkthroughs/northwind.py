"""Northwind with its outbox: its public dump, or rows in its shape, which are in this repository.

Those are CSV files in data/northwind, one for each table; names are invented, only what the
reference walkthroughs state is theirs. The items of the orders were once drawn at random so that
`customer_profiles.csv` is met, which gives each customer's number of orders, and the quantity and
revenue its items have on average: the findings of the dashboard (three big customers, five
promising ones) are input, not luck, and a test holds that. Order 11075 is left out: the walkthrough
inserts it later, as row 830 with details 2,153 to 2,155.
"""

from typing import Any

from ..base import ROOT
from ..source import csv_files
from ..source.loading import DUMP_STATEMENTS, Loader, Script, Steps, Table, find_file

DATA = ROOT / "data" / "northwind"
TABLES = (
    "region",
    "territories",
    "categories",
    "suppliers",
    "shippers",
    "products",
    "employees",
    "employee_territories",
    "customers",
    "orders",
    "order_details",
)


def sample_tables(scale: int = 1) -> list[Table]:
    """Return the tables of Northwind in the order to load them.

    Args:
        scale: 1 gives 829 orders with 2,152 details; n gives each n times, with order ids that are
            830 higher.

    Raises:
        SourceError: scale is not a whole number from 1 to 1000.
    """
    return csv_files.bundled_tables(DATA, TABLES, scale, {"orders": 830, "order_details": 830})


def _steps(scale: Any, from_dir: Any) -> Steps:
    if from_dir:
        dump = find_file(from_dir, "northwind.sql", "the public dump, northwind.sql")
        rows = [Script(dump, allowed=DUMP_STATEMENTS), Script(DATA / "02_public_dump.sql")]
    else:
        rows = [
            Script(DATA / "01_northwind_ddl.sql"),
            *sample_tables(scale),
            Script(DATA / "02_northwind_keys.sql"),
        ]
    return [*rows, Script(DATA / "03_cdc_events.sql")]


loader = Loader(
    "northwind", "datalake", ("orders", "order_details", "cdc_events"), _steps, owns_schema=True
)
