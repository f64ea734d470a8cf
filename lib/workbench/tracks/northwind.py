"""Northwind with its outbox: the public dump, or bundled rows in its form.

The bundled rows are CSV files in data/northwind, one for each table. Names are invented; only the
facts of the reference walkthroughs are real. The items of the orders were drawn at random once so
that they match `customer_profiles.csv`: each customer's number of orders, and the average quantity
and revenue of its items. So the findings of the dashboard (three big customers, five promising
ones) are input, not chance, and a test ensures that. A scale of n repeats the orders n times, with
higher ids. Order 11075 is left out: the walkthrough
inserts it later, as row 830 with details 2,153 to 2,155.
"""

from typing import Any

from ..base import ROOT
from ..source.loading import DUMP_STATEMENTS, Loader, Script, Steps
from ..source.row_files import csv_rows, find_file

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


def _steps(from_dir: Any) -> Steps:
    outbox = Script(DATA / "03_cdc_events.sql")
    if from_dir:
        dump = find_file(from_dir, "northwind.sql", "the public dump, northwind.sql")
        return [Script(dump, DUMP_STATEMENTS), Script(DATA / "02_public_dump.sql"), outbox]
    rows = [csv_rows(DATA / f"{name}.csv", name) for name in TABLES]
    ddl, keys = (Script(DATA / f"{name}.sql") for name in ("01_northwind_ddl", "02_northwind_keys"))
    return [ddl, *rows, keys, outbox]


loader = Loader(
    "northwind", "datalake", ("orders", "order_details", "cdc_events"), _steps, owns_schema=True
)
