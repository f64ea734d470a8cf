"""Hundreds of random changes through the real connector: at labels in the past, everybody's rows
are the source's.

Everybody: the Copy-on-Write table and the Merge-on-Read table's real-time view as Spark reads them,
    and both as hudi-rs
does, which shares no code with Spark or Hudi's Java. The Merge-on-Read table has soft deletes, as
those of the museum; one with hard deletes is read by Spark, and by hudi-rs once it is compacted
(see hudi.read_arrow).
"""

import datetime as dt
from decimal import Decimal
from random import Random

import avro_help
import pytest
from lake_help import new_table
from workbench import hudi
from workbench.base.errors import CheckFailed
from workbench.checks import check
from workbench.source import postgres
from workbench.topic import topics

NAME, SEED = "random_test", 7
TOPIC = f"{NAME}.public.artists"
COLUMNS = ("artist_id", "name", "nationality", "birth_year", "price", "born", "seen")
SCRIPT = """
    CREATE TABLE artists (artist_id int PRIMARY KEY, name text, nationality text, birth_year int,
                          price numeric(10, 2), born date, seen timestamp);
    INSERT INTO artists SELECT n, 'Artist ' || n, 'American', 1900 + n % 100, n * 1.25, DATE '1900-01-01' + n, NULL
      FROM generate_series(1, 200) n"""
# partitions: with a slash, not ASCII, null (an empty text reads as null there, see
# test_travel_faults)
NATIONS = ("American", "German", "Spanish/Basque", "Fran\u00e7ais", None)
# nothing is cleaned or archived, or the first labels could not be read any more
KEPT = {
    "hoodie.cleaner.commits.retained": "60",
    "hoodie.keep.min.commits": "70",
    "hoodie.keep.max.commits": "80",
}
# Into a small file Hudi packs what is new, and then writes the base file anew instead of a log:
# there would be none
COMPACTED = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.parquet.small.file.limit": "0",
}


@pytest.fixture
def lab(world):
    with avro_help.museum(world, NAME, SCRIPT, tables=["artists"]) as lab:
        topics.wait_for_messages(lab, TOPIC, 200, connector=NAME)
        yield lab


class Changes:
    """Random statements, and how many messages each makes; knows which keys there are."""

    def __init__(self):
        self.random, self.keys, self.gone = Random(SEED), list(range(1, 201)), []
        self.counts = dict.fromkeys(("insert", "update", "move", "delete"), 0)

    def values(self):
        r = self.random
        return {
            "name": r.choice(["Gerhard", "Gen\u00e8ve \u2603", "", None, "O'Neill"]),
            "birth_year": r.randrange(1500, 2000),
            "price": Decimal(r.randrange(-(10**9), 10**9)) / 100,
            "born": dt.date(1500, 1, 1) + dt.timedelta(r.randrange(180_000)),
            "seen": dt.datetime(1969, 1, 1) + dt.timedelta(microseconds=r.randrange(5 * 10**15)),
        }

    def next(self):
        r = self.random
        kind = r.choices(list(self.counts), (20, 45, 20, 15))[0]
        self.counts[kind] += 1
        if kind == "insert":  # every third time a key that was deleted before
            again = self.gone and r.random() < 0.33
            key = (
                self.gone.pop(r.randrange(len(self.gone)))
                if again
                else max(self.keys + self.gone) + 1
            )
            self.keys.append(key)
            row = {"artist_id": key, "nationality": r.choice(NATIONS), **self.values()}
            return (
                f"INSERT INTO artists ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})",  # noqa: S608
                list(row.values()),
                1,
            )
        key = r.choice(self.keys)
        if kind == "delete":
            self.keys.remove(key)
            self.gone.append(key)
            return "DELETE FROM artists WHERE artist_id = %s", [key], 2  # and a tombstone
        if kind == "move":
            return (
                "UPDATE artists SET nationality = %s WHERE artist_id = %s",
                [r.choice(NATIONS), key],
                1,
            )
        row = {n: v for n, v in self.values().items() if r.random() < 0.5} or {"birth_year": 1}
        return (
            f"UPDATE artists SET {', '.join(f'{n} = %s' for n in row)} WHERE artist_id = %s",
            [*row.values(), key],
            1,
        )


@pytest.mark.parametrize(
    "changes, labels", [(300, 2), pytest.param(1_000, 5, marks=pytest.mark.drill)]
)
def test_instants_in_the_past_as_everybody_reads_them(lab, world, spark, changes, labels):
    cow, mor, hard = [
        new_table(
            world,
            key=("artist_id",),
            partition=("nationality",),
            index="GLOBAL_SIMPLE",
            type=kind,
            deletes=deletes,
            extra={**KEPT, **(COMPACTED if kind == "mor" else {})},
        )
        for kind, deletes in (("cow", "hard"), ("mor", "soft"), ("mor", "hard"))
    ]
    tables = {"cow": cow, "mor": mor, "mor with hard deletes": hard}
    made, truth, count = Changes(), {}, 200
    try:
        for number in range(labels):
            with postgres.connect(lab) as c:
                for _ in range(changes // labels // 10):
                    with c.transaction():  # ten changes in each: a key may be there twice
                        for _ in range(10):
                            statement, values, messages = made.next()
                            assert c.execute(statement, values).rowcount == 1
                            count += messages
            topics.wait_for_messages(lab, TOPIC, count, connector=NAME)
            for table in tables.values():
                done = hudi.ingest(spark, lab, hudi.Topic(TOPIC, format="avro"), table, batch=300)
                assert done.dead_letters == 0 and done.messages > 0
                hudi.label(world, table, f"label_{number}")
            truth[f"label_{number}"] = postgres.query(
                lab, f"SELECT {', '.join(COLUMNS)} FROM artists ORDER BY 1"
            )
        assert sum(made.counts.values()) == changes and min(made.counts.values()) > changes // 10, (
            made.counts
        )
        assert {"commit", "deltacommit"} == set(hudi.commits(mor)["action"]), (
            "no compaction came in between"
        )
        compared = []
        for name, table in tables.items():
            for each in hudi.labels(world, table).itertuples():
                readers = {"Spark": hudi.as_of(spark, world, table, each.label).toPandas}
                if table is not hard:
                    rows = hudi.read_arrow(table, as_of=(world, each.label))
                    readers["hudi-rs"] = rows.to_pandas
                for who, read in readers.items():
                    same(truth[each.label], read(), f"{name}, {each.label}, {who}")
                    compared.append((name, each.label, who))
        assert len(compared) == len(set(compared)) == (2 + 2 + 1) * labels
        last = truth[f"label_{labels - 1}"]
        hudi.compact(spark, hard)
        same(last, hudi.read_arrow(hard).to_pandas(), "mor with hard deletes, compacted, hudi-rs")
        with pytest.raises(CheckFailed, match="artist_id="):  # what would be wrong is seen
            same(truth["label_0"], last.assign(__deleted="false"), "the first label = the last")
    finally:
        for table in tables.values():
            hudi.drop(spark, world, table)


def same(source, lake, what):
    lake = lake[lake["__deleted"] != "true"]  # soft deletes stay in the lake
    check.same_rows(source, lake[list(COLUMNS)], key="artist_id", claim=what)
