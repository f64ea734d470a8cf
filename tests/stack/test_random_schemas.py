"""Random DDL and DML on both source databases, a table for each seed: the lake has the columns and
the rows that the source has at the end, or its ingest stopped with a message that names the change.

What a lake cannot know is told here, too: a column that is added, or gets another name, comes with
no event of the rows that are there, so it is null in them until they are written again.
"""

import contextlib
import copy
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from random import Random
from types import SimpleNamespace

import avro_help
import mariadb_help
import pytest
from workbench import hudi
from workbench.base.errors import LakeError, WorkbenchError
from workbench.source import mariadb, postgres
from workbench.topic import registry, topics

NAME = "random_schemas"
START = {"a": "varchar(20)", "b": "int", "c": "decimal(10,2)"}
NAMES = [*START, *"defghi", "order", "group", "key", "select", "user", "COUNTRY"]
WORDS = ["", "x", "O'Neill", "Gen\u00e8ve \u2603", "null"]
VALUES = {
    "int": lambda r: r.choice([0, -(2**31), r.randrange(10**6)]),
    "bigint": lambda r: r.randrange(-(10**6), 2**31),  # so that it may become an int
    "decimal(10,2)": lambda r: Decimal(r.randrange(-(10**9), 10**9)) / 100,
    "double precision": Random.random,
    "date": lambda r: dt.date(1900, 1, 1) + dt.timedelta(r.randrange(50_000)),
}
VALUES["decimal(12,2)"] = VALUES["decimal(10,2)"]
LAKE = {
    "double precision": "double",
    "decimal(10,2)": "decimal(10,2)",
    "decimal(12,2)": "decimal(12,2)",
}
FOLLOWS = [{"int", "bigint"}, {"int", "double"}]  # of one column of the lake, whichever comes first


class Source:
    """A table of one seed: its statements, and what is known of its columns and rows then."""

    def __init__(self, engine, seed):
        self.engine, self.seed, self.random, self.table = (
            engine,
            seed,
            Random(f"{engine} {seed}"),
            f"t{seed}",
        )
        self.step, self.next, self.messages, self.said = 0, 1, 0, []
        self.columns = dict(START)  # of the source now
        self.required = set()
        self.since = dict.fromkeys(START, 0)  # the step at which a column got its name
        self.gone, self.again = (
            {},
            set(),
        )  # the step at which the source lost a column; names that came again
        self.types = {
            name: {lake_type(kind)} for name, kind in START.items()
        }  # all that it was since the beginning
        self.rows = {}  # the step at which each was written last

    def q(self, name):
        sign = "`" if self.engine == "mariadb" and self.seed % 2 else '"'
        return f"{sign}{name}{sign}"

    def say(self, statement):
        self.step += 1
        self.said.append(statement)

    def create(self):
        columns = ", ".join(f"{self.q(name)} {kind}" for name, kind in START.items())
        self.say(f"CREATE TABLE {self.table} (id int PRIMARY KEY, n int NOT NULL, {columns})")
        for _ in range(2):
            self.insert()

    def go_on(self, steps):
        for _ in range(steps):
            if self.random.random() < 0.4:
                for _ in range(self.random.choice([1, 1, 2])):
                    self.alter()
            else:
                self.transaction()
        self.insert()

    def transaction(self):
        before = copy.deepcopy({k: v for k, v in vars(self).items() if k != "random"})
        self.say("BEGIN")
        for _ in range(self.random.randrange(1, 5)):
            self.random.choices([self.insert, self.update, self.delete], (4, 5, 2))[0]()
            if self.engine == "postgres" and self.random.random() < 0.15:  # MariaDB's would commit
                self.alter()
        if self.random.random() < 0.1:
            said, step, next_ = self.said, self.step, self.next
            vars(self).update(before, said=said, step=step, next=next_)
            self.say("ROLLBACK")
        else:
            self.say("COMMIT")

    def value(self, name):
        kind = self.columns[name]
        if name not in self.required and self.random.random() < 0.2:
            return None
        if kind.startswith("ENUM"):
            return self.random.choice(["s", "m", "l"] if "'l'" in kind else ["s", "m"])
        return VALUES.get(kind, lambda r: r.choice(WORDS))(self.random)

    def insert(self):
        some = [name for name in self.columns if self.random.random() < 0.8]
        values = {"id": self.next, "n": self.step, **{name: self.value(name) for name in some}}
        self.say(
            f"INSERT INTO {self.table} ({', '.join(map(self.q, values))}) "
            f"VALUES ({', '.join(map(literal, values.values()))})"
        )
        self.rows[self.next], self.next, self.messages = self.step, self.next + 1, self.messages + 1

    def update(self):
        if self.rows:
            key = self.random.choice(list(self.rows))
            values = {
                "n": self.step,
                **{name: self.value(name) for name in self.columns if self.random.random() < 0.5},
            }
            self.say(
                f"UPDATE {self.table} SET {', '.join(f'{self.q(k)} = {literal(v)}' for k, v in values.items())} "
                f"WHERE id = {key}"
            )
            self.rows[key], self.messages = self.step, self.messages + 1

    def delete(self):
        if len(self.rows) > 1:
            key = self.random.choice(list(self.rows))
            self.say(f"DELETE FROM {self.table} WHERE id = {key}")
            del self.rows[key]
            self.messages += 2  # and a tombstone

    def alter(self):
        weights = {self.add: 5, self.drop: 3, self.rename: 4, self.retype: 5}
        if self.engine == "mariadb":
            weights |= {self.reorder: 3, self.grow: 3, self.change: 2}
        self.random.choices(list(weights), weights.values())[0]()

    def of_kind(self, start):
        return [name for name, kind in self.columns.items() if kind.startswith(start)]

    def place(self, of=""):
        """Where MariaDB is to put a column, now and then."""
        if self.engine == "postgres" or self.random.random() < 0.5:
            return ""
        if not of.islower() and of:
            return " FIRST"  # behind another Debezium loses its way (docs/limits.md)
        others = [name for name in ("id", *self.columns) if name != of]
        return self.random.choice([" FIRST", *(f" AFTER {self.q(name)}" for name in others)])

    def known(self, name, kind):
        """A column has a type from now on."""
        self.types.setdefault(name, set()).add(lake_type(kind))
        self.columns[name] = kind

    def named(self, name, kind):
        self.known(name, kind)
        self.since[name] = self.step
        if self.gone.pop(name, None):
            self.again.add(name)

    def lost(self, name):
        self.columns.pop(name)
        self.required.discard(name)
        self.gone[name] = self.step

    def new_name(self):
        free = [name for name in NAMES if name not in self.columns]
        # one that was there is another column then: seldom, for it stops where it has another type
        fresh = [name for name in free if name not in self.types]
        return (
            self.random.choice(free if not fresh or self.random.random() < 0.08 else fresh)
            if free
            else None
        )

    def add(self):
        name = self.new_name()
        if name:
            kind = self.random.choice(
                [*VALUES, "varchar(20)", *(["ENUM('s','m')"] * (self.engine == "mariadb"))]
            )
            required = not kind.startswith(("ENUM", "date")) and self.random.random() < 0.5
            default = "'new'" if kind.startswith("varchar") else "7"
            self.say(
                f"ALTER TABLE {self.table} ADD COLUMN {self.q(name)} {kind}"
                f"{f' NOT NULL DEFAULT {default}' if required else ''}{self.place()}"
            )
            self.named(name, kind)
            self.required |= {name} if required else set()

    def drop(self):
        if len(self.columns) > 1:
            name = self.random.choice(list(self.columns))
            self.say(f"ALTER TABLE {self.table} DROP COLUMN {self.q(name)}")
            self.lost(name)

    def rename(self):
        old, new = self.random.choice(list(self.columns)), self.new_name()
        if new:
            was, required = self.columns[old], old in self.required
            self.say(f"ALTER TABLE {self.table} RENAME COLUMN {self.q(old)} TO {self.q(new)}")
            self.lost(old)
            self.named(new, was)
            self.required |= {new} if required else set()

    def change(self):
        """Another name, another type and another place at a time."""
        found, new = [n for n in self.of_kind("int") if n not in self.required], self.new_name()
        if found and new:
            place = self.place(found[0] if new.islower() else new)
            self.say(
                f"ALTER TABLE {self.table} CHANGE {self.q(found[0])} {self.q(new)} bigint{place}"
            )
            self.lost(found[0])
            self.named(new, "bigint")

    def retype(self):
        was, kind = self.random.choices(
            [
                ("int", "bigint"),
                ("bigint", "int"),
                ("varchar", "varchar(40)"),
                ("varchar", "text"),
                ("int", "varchar(20)"),
                ("decimal(10", "decimal(12,2)"),
            ],
            (20, 4, 10, 4, 1, 1),
        )[0]
        found = [name for name in self.of_kind(was) if name not in self.required]
        if found:
            name = self.random.choice(found)
            how = "TYPE" if self.engine == "postgres" else ""
            verb = f"ALTER COLUMN {self.q(name)} {how}" if how else f"MODIFY {self.q(name)}"
            self.say(f"ALTER TABLE {self.table} {verb} {kind}")
            self.known(name, kind)

    def reorder(self):
        found = [name for name in self.columns if name not in self.required]
        if found:
            name = self.random.choice(found)
            self.say(
                f"ALTER TABLE {self.table} MODIFY {self.q(name)} {self.columns[name]}{self.place(name)}"
            )

    def grow(self):
        for name in self.of_kind("ENUM"):
            self.say(f"ALTER TABLE {self.table} MODIFY {self.q(name)} ENUM('s','m','l')")
            self.known(name, "ENUM('s','m','l')")

    def cannot_follow(self):
        """Columns that had types of which no column of the lake holds both."""
        return {
            name
            for name, kinds in self.types.items()
            if any(a != b and {a, b} not in FOLLOWS for a in kinds for b in kinds)
        }


def lake_type(kind):
    return LAKE.get(kind, kind if kind in ("int", "bigint", "date") else "string")


def literal(value):
    if value is None or isinstance(value, (int, float, Decimal)):
        return "NULL" if value is None else str(value)
    return "'" + str(value).replace("'", "''") + "'"


@contextlib.contextmanager
def postgres_lab(world, tables):
    script = "; ".join(each for table in tables for each in table.said)
    with avro_help.museum(
        world, NAME, script, [t.table for t in tables], **{"table.include.list": r"public\.t\d+"}
    ) as lab:
        yield SimpleNamespace(
            topic=lambda of: f"{NAME}.public.{of}",
            session=lambda: postgres.session(lab, NAME),
            ordering="__lsn",
        )
    registry.delete(world, *(a for a in registry.names(world) if a.startswith(NAME)))


@contextlib.contextmanager
def mariadb_lab(world, tables):
    with mariadb_help.captured_database(
        world, NAME, *(each for table in tables for each in table.said)
    ) as lab:
        yield SimpleNamespace(
            topic=lab.topic,
            session=lambda: mariadb.session(world, NAME),
            ordering=mariadb_help.ORDERING,
        )


LABS = {"postgres": postgres_lab, "mariadb": mariadb_lab}


@pytest.mark.parametrize("engine", LABS)
@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 208), marks=pytest.mark.drill)], ids=["few", "many"]
)
def test_the_lake_is_the_source_or_has_stopped_and_said_so(world, spark, engine, seeds):
    sources = [Source(engine, seed) for seed in seeds]
    for source in sources:
        source.create()
    lakes = {
        s: hudi.table(
            world,
            f"{NAME}_{engine}_{s.seed}",
            key=("id",),
            type=("cow", "mor")[s.seed % 2],
            ordering={"postgres": "__lsn", "mariadb": mariadb_help.ORDERING}[engine],
        )
        for s in sources
    }
    stopped, wrong = {}, {}

    def of_each(do):
        """Do it for all that go on, two at a time; what is wrong is told of all."""

        def one(source):
            try:
                do(source)
            except (AssertionError, WorkbenchError) as e:
                wrong[source] = told(source, e)

        list(pool.map(one, [s for s in sources if s not in stopped and s not in wrong]))

    def ingest(source):
        topic = lab.topic(source.table)
        topics.wait_for_messages(world, topic, source.messages, connector=NAME)
        try:
            done = hudi.ingest(spark, world, hudi.Topic(topic, format="avro"), lakes[source])
            assert done.dead_letters == 0, "it has dead letters"
        except LakeError as e:
            if not any(
                f".{name} was " in str(e) for name in source.cannot_follow()
            ) or "cannot follow" not in str(e):
                raise
            stopped[source] = str(e)

    try:
        with LABS[engine](world, sources) as lab, lab.session() as c, ThreadPoolExecutor(2) as pool:
            for source in sources:
                topics.wait_for_messages(
                    world, lab.topic(source.table), source.messages, connector=NAME
                )
            for _ in range(2):
                for source in sources:
                    begin = len(source.said)
                    source.go_on(8)
                    for statement in source.said[begin:]:
                        c.execute(statement)
                of_each(ingest)
            truth = {
                source: rows_of(c.execute(f"SELECT * FROM {source.table}")) for source in sources
            }
            of_each(
                lambda s: same(
                    s, truth[s], [row.asDict() for row in hudi.read(spark, lakes[s]).collect()]
                )
            )
    finally:
        for lake in lakes.values():
            hudi.drop(spark, world, lake)
    changes = sum("ALTER" in statement for source in sources for statement in source.said)
    print(
        f"{engine}: {len(sources)} sequences, {changes} changes of columns; stopped {len(stopped)}:",
        *sorted(text.splitlines()[0] for text in stopped.values()),
        sep="\n  ",
    )
    assert not wrong, f"{len(wrong)} of {len(sources)} are wrong\n" + "\n".join(wrong.values())
    assert len(stopped) < len(sources) / 3


def rows_of(cursor):
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def same(source, truth, lake):
    """Whether the lake has what the source has, as far as an event has said it; and nulls where
    columns are gone."""
    assert {row["id"] for row in truth} == set(source.rows), "the test does not know its rows"
    lake = {row["id"]: row for row in lake}
    assert set(lake) == set(source.rows), f"rows: lake {sorted(lake)}, source {sorted(source.rows)}"
    for row in truth:
        written, seen = source.rows[row["id"]], lake[row["id"]]
        for name, value in row.items():
            stale = written < source.since.get(name, 0)
            if stale and name in source.again:
                # the value of the column that was there before stays until the row is written again
                continue
            expected = None if stale else value
            assert name in seen and seen[name] == expected, (
                f"id {row['id']}, {name}: lake {seen.get(name, 'no such column')!r}, source {expected!r}"
            )
        for name, step in source.gone.items():
            assert written < step or seen.get(name) is None, (
                f"{name} is gone; id {row['id']}: {seen}"
            )


def told(source, what):
    return f"{source.engine}, seed {source.seed}: {what}\n" + "".join(
        f"  {s};\n" for s in source.said
    )
