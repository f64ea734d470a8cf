"""Pagila's bundled rows: counts, those that walkthroughs state; random changes."""

import itertools

import nbformat
import pandas
import pytest
from workbench.base import paths
from workbench.base.errors import SourceError
from workbench.source.row_files import read_dicts
from workbench.tracks import pagila

COUNTS = {
    "language": 6,
    "category": 16,
    "actor": 200,
    "country": 109,
    "city": 600,
    "address": 603,
    "customer": 599,
    "film": 1000,
    "film_actor": 5462,
    "film_category": 1000,
    "inventory": 4581,
}
# S3, section 2: address, district, postal code, phone, city's number and name, country
ADDRESSES = {
    6: (
        "1121 Loja Avenue",
        "California",
        "17886",
        "838635286649",
        449,
        "San Bernardino",
        "United States",
    ),
    18: (
        "770 Bydgoszcz Avenue",
        "California",
        "16266",
        "517338314235",
        120,
        "Citrus Heights",
        "United States",
    ),
    100: (
        "1308 Arecibo Way",
        "Georgia",
        "30695",
        "6171054059",
        41,
        "Augusta-Richmond County",
        "United States",
    ),
    101: ("1599 Plock Drive", "Tete", "71986", "817248913162", 534, "Tete", "Mozambique"),
    102: (
        "669 Firozabad Loop",
        "Abu Dhabi",
        "92265",
        "412903167998",
        12,
        "al-Ayn",
        "United Arab Emirates",
    ),
    103: (
        "588 Vila Velha Manor",
        "Kyongsangbuk",
        "51540",
        "333339908719",
        268,
        "Kimchon",
        "South Korea",
    ),
    104: (
        "1913 Kamakura Place",
        "Lipetsk",
        "97287",
        "942570536750",
        238,
        "Jelets",
        "Russian Federation",
    ),
    105: ("733 Mandaluyong Place", "Asir", "77459", "196568435814", 2, "Abha", "Saudi Arabia"),
    599: (
        "1895 Zhezqazghan Drive",
        "California",
        "36693",
        "137809746111",
        177,
        "Garden Grove",
        "United States",
    ),
}
FILMS = {
    1: ("ACADEMY DINOSAUR", "0.99", 6),
    2: ("ACE GOLDFINGER", "4.99", 3),
    3: ("ADAPTATION HOLES", "2.99", 7),
    4: ("AFFAIR PREJUDICE", "2.99", 5),
    5: ("AFRICAN EGG", "2.99", 6),
}  # S7, section 2


@pytest.fixture(scope="module")
def data():
    """The tables; keys as numbers, all else as the files have it."""
    made = {}
    for name in pagila.TABLES:
        rows = read_dicts(pagila.DATA / f"{name}.csv")
        made[name] = table = pandas.DataFrame(rows, dtype=object)
        table[table == r"\N"] = None
        keys = [c for c in table.columns if c.endswith("_id") and table[c].notna().all()]
        table[keys] = table[keys].astype(int)
    return made


def test_counts_and_keys(data):
    assert {name: len(table) for name, table in data.items()} == COUNTS
    for name, table in data.items():
        keys = list(table.iloc[:, : 2 if name == "film_actor" else 1].itertuples(index=False))
        assert keys == sorted(set(keys)), name
    assert set(data["address"]["address_id"]) == set(range(1, 606)) - {257, 518}


def test_addresses_that_are_stated(data):
    """Each of them in its city and country; the second line is empty."""
    joined = (
        data["address"].merge(data["city"], on="city_id").merge(data["country"], on="country_id")
    )
    joined = joined.set_index("address_id")
    for key, (address, district, code, phone, *place) in ADDRESSES.items():
        row = joined.loc[key]
        assert list(row[["address", "address2", "district", "postal_code", "phone"]]) == [
            address,
            "",
            district,
            code,
            phone,
        ]
        assert [int(row["city_id"]), row["city"], row["country"]] == place
    assert joined["country"].nunique() == 109, "each country has an address"
    assert joined["city_id"].nunique() == 600 and "Wakanda" not in set(joined["country"])


def test_films_that_are_stated(data):
    films = data["film"].set_index("film_id")
    for key, (title, rate, duration) in FILMS.items():
        row = films.loc[key]
        assert [
            row["title"],
            row["release_year"],
            row["rental_rate"],
            int(row["rental_duration"]),
        ] == [title, "2006", rate, duration]
    assert list(films.loc[1, ["length", "replacement_cost", "rating", "language_id"]]) == [
        "86",
        "20.99",
        "PG",
        1,
    ]
    assert (
        films.loc[1, "original_language_id"] is None
        and "Mad Scientist" in films.loc[1, "description"]
    )
    assert str(films.loc[1, "last_update"]) == "2017-09-10 17:46:03.905795"
    assert set(films["rating"]) == {"G", "PG", "PG-13", "R", "NC-17"} and films["title"].is_unique


def test_what_the_changes_need(data):
    cast, customers = data["film_actor"], data["customer"]
    of = {film: set(cast[cast["film_id"] == film]["actor_id"]) for film in (5, 100, 375, 376)}
    assert 5 in of[375] and len(of[375]) > 1 and {52, 60} <= of[376]
    assert of[5] and of[100] and not of[5] & of[100], (
        "or the cast of film 5 could not become that of film 100"
    )
    genre = data["film_category"].set_index("film_id")["category_id"]
    assert genre[5] != genre[100] and 5 in set(data["inventory"]["film_id"])
    assert list(customers[customers["address_id"] == 104]["customer_id"]) == [100]
    assert data["actor"].set_index("actor_id").loc[7, "last_name"] == "MOSTEL"
    assert not {"Techno Thriller", "Steampunk"} & set(data["category"]["name"])


def test_references_hold(data):
    """What the foreign keys of the database will ask for."""
    for table, column, other in (
        ("city", "country_id", "country"),
        ("customer", "address_id", "address"),
        ("film", "language_id", "language"),
        ("film_actor", "film_id", "film"),
        ("film_actor", "actor_id", "actor"),
        ("film_category", "category_id", "category"),
        ("film_category", "film_id", "film"),
        ("inventory", "film_id", "film"),
    ):
        assert set(data[table][column].astype(int)) <= set(data[other][f"{other}_id"]), (
            table,
            column,
        )


# --- random changes
# --------------------------------------------------------------------------------------------------


def test_random_changes():
    """So many, the same every time, one or several in a transaction; some of the same kind and row
    in succession."""
    made = list(pagila.random_changes(7, 500))
    assert made == list(pagila.random_changes(7, 500)) != list(pagila.random_changes(8, 500))
    assert sum(map(len, made)) == 500 and {len(transaction) for transaction in made} >= {1, 2, 10}
    flat = list(itertools.chain.from_iterable(made))
    again = sum((a, b["row"]) == (c, d["row"]) for (a, b), (c, d) in zip(flat, flat[1:]))
    assert 120 < again < 210 and len({values["n"] for _, values in flat}) > 490
    assert {pagila._CHANGED_TABLE.match(statement)[1] for statement, _ in flat} == set(COUNTS) - {
        "customer",
        "inventory",
    }
    assert list(pagila.random_changes(7, 0)) == []


def test_random_changes_of_some_tables():
    (statements,) = pagila.random_changes(7, 1, ["city"])
    assert pagila._CHANGED_TABLE.match(statements[0][0])[1] == "city"
    with pytest.raises(SourceError, match="no changes of"):
        next(pagila.random_changes(7, 5, ["rental"]))


def test_the_answer_of_the_exercise_on_partitions(data):
    """Notebook 35, exercise 1: how many years the films have after the published changes."""
    years = data["film"].set_index("film_id")["release_year"].drop(5).to_dict()
    years.update({1: "2019", 4: "2017"})
    book = nbformat.read(
        paths.ROOT / "notebooks" / "30_log_based_cdc" / "35_refined.ipynb", as_version=4
    )
    (exercises,) = [cell.source for cell in book.cells if cell.source.startswith("## Exercises")]
    assert f"1. {len(set(years.values()))} " in exercises.split("Solutions")[1]
