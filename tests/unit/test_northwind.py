"""The bundled rows: counts, named rows, the dashboard's findings."""

import pandas
import pytest
from workbench.source.row_files import read_dicts
from workbench.tracks import northwind

BIG = ["ERNSH", "QUICK", "SAVEA"]
RICSU_11075 = [(11075, 2, 19.0, 10, 0.15), (11075, 46, 12.0, 30, 0.15), (11075, 76, 18.0, 2, 0.15)]


NUMBERS = [
    "order_id",
    "employee_id",
    "ship_via",
    "freight",
    "product_id",
    "unit_price",
    "quantity",
    "discount",
]


@pytest.fixture(scope="module")
def data():
    """The tables; of orders and their details, numbers as PostgreSQL would have them."""
    made = {}
    for name in northwind.TABLES:
        rows = read_dicts(northwind.DATA / f"{name}.csv")
        made[name] = pandas.DataFrame(
            [{column: value or None for column, value in row.items()} for row in rows]
        )
    for table in (made["orders"], made["order_details"]):
        table[table.columns.intersection(NUMBERS)] = table[
            table.columns.intersection(NUMBERS)
        ].apply(pandas.to_numeric)
    return made


def per_customer(orders, details):
    items = details.merge(orders[["order_id", "customer_id"]])
    items["revenue"] = items.quantity * items.unit_price * (1 - items.discount)
    return items.groupby("customer_id").agg(
        revenue=("revenue", "sum"),
        orders=("order_id", "nunique"),
        quantity=("quantity", "mean"),
        item=("revenue", "mean"),
    )


def with_11075(data):
    orders = pandas.concat(
        [
            data["orders"][["order_id", "customer_id"]],
            pandas.DataFrame([(11075, "RICSU")], columns=["order_id", "customer_id"]),
        ]
    )
    details = pandas.concat(
        [
            data["order_details"],
            pandas.DataFrame(RICSU_11075, columns=data["order_details"].columns),
        ]
    )
    return orders, details


def test_counts(data):
    assert len(data["orders"]) == 829 and len(data["order_details"]) == 2152
    assert len(data["customers"]) == 91 and len(data["products"]) == 77
    assert (
        data["orders"].customer_id.nunique() == 89
        and data["order_details"]["product_id"].nunique() == 77
    )
    assert set(data["orders"].order_id) == set(range(10248, 11078)) - {11075}
    assert set(data["order_details"].order_id) == set(data["orders"].order_id)


def test_named_rows(data):
    order = data["orders"].set_index("order_id").loc[11077]
    assert order.customer_id == "RATTC" and order.shipped_date is None
    assert (data["order_details"].order_id == 11077).sum() == 25
    richter = data["customers"].set_index("customer_id").loc["RICSU"]
    assert list(
        richter[["company_name", "address", "city", "region", "postal_code", "country"]]
    ) == ["Richter Supermarkt", "Starenweg 5", "Genève", None, "1204", "Switzerland"]
    prices = data["products"].set_index("product_id").unit_price.astype(float)
    assert list(prices[["2", "46", "76"]]) == [19, 12, 18]


def test_references_hold(data):
    """What the foreign keys of the database will ask for."""
    assert not data["order_details"].duplicated(["order_id", "product_id"]).any()
    assert set(data["order_details"]["product_id"].astype(str)) <= set(data["products"].product_id)
    assert set(data["orders"].customer_id) <= set(data["customers"].customer_id)
    assert set(data["orders"].employee_id.astype(str)) <= set(data["employees"].employee_id)
    assert set(data["orders"].ship_via.astype(str)) <= set(data["shippers"].shipper_id)
    assert data["order_details"].quantity.between(1, 130).all()
    shipped = data["orders"].dropna(subset=["shipped_date"])
    assert (shipped.shipped_date > shipped.order_date).all() and len(shipped) < 829


@pytest.mark.parametrize("variant", ["before", "after"])
def test_findings_of_the_dashboard(data, variant):
    """S2, section 7: Q3 and Q4, before and after order 11075 is inserted."""
    pair = with_11075(data) if variant == "after" else (data["orders"], data["order_details"])
    by = per_customer(*pair)
    ranked = by.sort_values("revenue", ascending=False)
    assert sorted(ranked.index[:3]) == BIG
    assert ranked.revenue.iloc[2] > 1.5 * ranked.revenue.iloc[3], "clearly ahead"
    assert 0.5 < ranked.revenue.iloc[:20].sum() / ranked.revenue.sum() < 0.7
    for column in ("quantity", "orders"):
        assert sorted(by[column].nlargest(3).index) == BIG
    promising = by[(by["item"] > by["item"][BIG].min()) & ~by.index.isin(BIG)]
    assert sorted(promising.index) == ["HANAR", "HUNGO", "MEREP", "PICCO", "SIMOB"]
    assert promising.orders.max() < by.orders[BIG].min()


def test_profiles_are_met(data):
    """The search for products came to its end for every customer: within a thousandth of the
    profile."""
    orders, details = with_11075(data)
    by = per_customer(data["orders"], data["order_details"])
    for profile in read_dicts(northwind.DATA / "customer_profiles.csv"):
        if int(profile["orders"]):
            assert by["item"][profile["customer_id"]] == pytest.approx(
                float(profile["item_revenue"]), rel=0.0011
            )
    assert per_customer(orders, details).orders["RICSU"] == 10
